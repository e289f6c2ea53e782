from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T", covariant=True)

class Dereferenceable(Generic[T]):
    def dereference(self) -> T: ...

class Deferred(Dereferenceable[T]):
    def __init__(self, constructor: Callable[..., T], *args: Any, **kwargs: Any) -> None: ...
