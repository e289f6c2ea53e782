import enum
from collections.abc import Callable
from typing import Any, Optional

class LaunchType(enum.Enum):
    LOCAL_MULTI_THREADING = ...
    LOCAL_MULTI_PROCESSING = ...
    TEST_MULTI_THREADING = ...

class LaunchContext:
    @property
    def launch_config(self) -> Any: ...
    @property
    def program_stopper(self) -> Callable[[], None]: ...
    def initialize(
        self,
        launch_type: LaunchType,
        launch_config: Any,
        program_stopper: Optional[Callable[[], None]] = ...,
    ) -> None: ...

def get_context() -> LaunchContext: ...

_LAUNCH_CONTEXT: Any
