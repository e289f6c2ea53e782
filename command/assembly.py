"""From settings to what they name: agent, environment, program."""

import dataclasses
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, cast

import launchpad as lp
import psutil
from absl import flags

import usage
from agents.agent import Agent, EnvironmentSpec, TableSpec
from agents.search_agent import SearchAgent
from command import flags as flags_
from command.settings import Settings
from environments import registry
from launchers import layout
from launchers.layout import Layout
from launchers.plan import check_mode
from usage import UsageError

if TYPE_CHECKING:
    from programs.ars import SearchOptions
    from programs.replay_program import ReplayOptions

AGENTS = {
    "apex": "agents.apex.agent:ApeX",
    "r2d2": "agents.r2d2.agent:R2D2",
    "ars": "agents.ars.agent:Ars",
}
CONFIG_PREFIX = "config."
AGENT_ONLY = (
    "agent",
    "env",
    "preset",
    "num_actors",
    "envs_per_actor",
    "replay_shards",
    "num_learners",
    "num_reducers",
    "async_learners",
    "max_staleness",
    "replay_address",
    "max_steps",
    "stop_when_solved",
    "seed",
    "checkpoint_seconds",
    "checkpoints_kept",
)
"""Flags that mean nothing for a program of one's own."""
REPLAY_ONLY = (
    "envs_per_actor",
    "replay_shards",
    "replay_address",
    "num_learners",
    "num_reducers",
    "async_learners",
    "max_staleness",
)
"""Flags that mean nothing for an agent without replay."""


@dataclasses.dataclass(frozen=True)
class Assembly:
    """What a launch will run, before its program is drawn.

    Attributes:
        name: What the run is called.
        settings: The flags.
        config: The agent's configuration, or None for a program of one's own.
        solved_at: Return at which the environment counts as solved, or None.
        draw: Draws the program.
        preload: Modules that the program's processes should have loaded.
        notices: Says what the person who starts it should know.
        unused: Flags that mean nothing for it.
    """

    name: str
    settings: Settings
    config: Any
    solved_at: Optional[float]
    draw: Callable[[], lp.Program]
    preload: Sequence[str]
    notices: Callable[[], Sequence[str]] = lambda: ()
    unused: Sequence[str] = ()

    def layout(self) -> Layout:
        """Returns what each group gets.

        Raises:
            UsageError: The layout's file cannot be used.
        """
        return Layout() if self.settings.layout is None else layout.read(self.settings.layout)

    def describe(self) -> dict[str, Any]:
        """Returns what was asked for as plain data, for `config.json`."""
        settings = dataclasses.asdict(self.settings)
        if self.settings.layout is not None:
            settings["layout"] = os.path.abspath(self.settings.layout)
        settings = {k: v for k, v in settings.items() if k not in self.unused}
        if self.config is None:
            return {"settings": settings}
        return {"settings": settings, "config": dataclasses.asdict(self.config)}


def read(arguments: Sequence[str]) -> tuple[Settings, flags.FlagValues]:
    """Reads a launch's arguments as far as they do not depend on one another.

    Where help is asked for, only that and what it depends on is read.
    """
    values = flags.FlagValues()
    flags_.define(values, Settings())
    flags_.parse(values, arguments, known_only=True)
    if values["help"].value:
        names = ("help", "agent", "program", "env", "preset")
        return Settings(**{name: values[name].value for name in names}), values
    return flags_.collect(values, Settings()), values


def assemble(settings: Settings, values: flags.FlagValues, arguments: Sequence[str]) -> Assembly:
    """Finds what `settings` name and checks that it fits together and into this machine.

    Raises:
        UsageError: Something does not exist or does not fit.
    """
    check_mode(settings.mode)
    if settings.address is not None and settings.mode != "ray":
        raise UsageError(f"--address is for --mode ray and means nothing in mode {settings.mode}.")
    if settings.program is not None:
        return _assemble_program(settings, settings.program, values, arguments)
    if settings.replay_address is not None and values["replay_shards"].present:
        raise UsageError(
            "--replay_shards means nothing with --replay_address, whose servers are the shards: "
            "leave it out."
        )
    agent, config, environment = make_agent(settings, values, arguments)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{settings.agent.rpartition(':')[2]}-{settings.env}")
    if is_search(agent):
        return _assemble_search(name, settings, values, agent, config, environment)
    if settings.replay_address is not None:
        _check_standing_replay(agent, settings)
    elif settings.mode != "ray":  # There replay is on whatever host the layout says.
        check_memory(agent.table)
    return Assembly(
        name,
        settings,
        config,
        environment.solved_at,
        lambda: _draw(name, agent, environment, settings),
        (*agent.preload, registry.module_of(settings.env), "nodes.replay_server"),
        lambda: _notices(agent, settings),
    )


def make_agent(
    settings: Settings, values: flags.FlagValues, arguments: Sequence[str]
) -> tuple[Agent, Any, registry.Environment]:
    """Returns the agent that `settings` name, its configuration and its environment.

    Raises:
        UsageError: Something does not exist or does not fit.
    """
    agent_class = _agent_class(settings)
    environment = registry.load(settings.env)
    preset = _preset(agent_class, settings)
    flags_.define(values, preset, CONFIG_PREFIX)
    flags_.parse(values, arguments)
    config = flags_.collect(values, preset, CONFIG_PREFIX)
    spec = EnvironmentSpec(environment.observations, environment.actions, environment.frame_stack)
    agent: Agent = agent_class(config, spec)
    ends = agent.life_loss_ends_episode
    return agent, config, dataclasses.replace(environment, life_loss_ends_episode=ends)


def is_search(agent: Any) -> bool:
    """Returns whether an agent compares policies by whole rollouts, and so has no replay."""
    return callable(getattr(agent, "make_search", None))


def _assemble_search(
    name: str,
    settings: Settings,
    values: flags.FlagValues,
    made: Any,
    config: Any,
    environment: registry.Environment,
) -> Assembly:
    agent = cast(SearchAgent, made)
    for flag in REPLAY_ONLY:
        if values[flag].present:
            raise UsageError(
                f"--{flag} is for agents with replay and means nothing with --agent "
                f"{settings.agent}: leave it out."
            )
    if settings.mode != "ray":  # There it is on whatever hosts the layout says.
        _check_room(
            f"A table of noise of {agent.noise_size:,} numbers of 4 bytes", 4 * agent.noise_size
        )
    return Assembly(
        name,
        settings,
        config,
        environment.solved_at,
        lambda: _draw_search(name, agent, environment, settings),
        (*agent.preload, registry.module_of(settings.env), "nodes.rollout_worker"),
        unused=REPLAY_ONLY,
    )


def _assemble_program(
    settings: Settings, name: str, values: flags.FlagValues, arguments: Sequence[str]
) -> Assembly:
    flags_.parse(values, arguments)
    for flag in AGENT_ONLY:
        if values[flag].present:
            raise UsageError(f"--{flag} is for --agent and means nothing with --program.")
    function = load_object("program", name)
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise UsageError(
            f"The program {name} must be a function that can be called without arguments: {error}."
        ) from None
    program = function()
    if not isinstance(program, lp.Program):
        raise UsageError(f"{name} returned a {type(program).__name__}, not a launchpad.Program.")
    return Assembly(program.name, settings, None, None, lambda: program, (), unused=AGENT_ONLY)


def all_flags(settings: Settings, values: flags.FlagValues) -> flags.FlagValues:
    """Returns `values` with the flags of the agent's configuration, as far as there is one."""
    if settings.program is None:
        flags_.define(values, _preset(_agent_class(settings), settings), CONFIG_PREFIX)
    return values


def check_memory(table: TableSpec) -> None:
    """Checks that a replay will fit into the memory that this process may have.

    Raises:
        UsageError: It will not.
    """
    _check_room(
        f"A replay of {table.max_size:,} items of about {table.bytes_per_item:,} bytes",
        table.max_size * table.bytes_per_item,
    )


def _check_room(what: str, needed: int) -> None:
    available = min(psutil.virtual_memory().available, _container_limit())
    if needed > available:
        raise UsageError(
            f"{what} needs {needed / 2**30:.1f} GiB, but {available / 2**30:.1f} GiB are free: "
            "make it smaller."
        )


def _container_limit() -> int:
    """Returns the memory limit of this process's control group, in bytes, or a very large one."""
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            return int(file.read())
    except (OSError, ValueError):  # No such group, or `max`.
        return sys.maxsize


def load_object(kind: str, name: str, known: Optional[dict[str, str]] = None) -> Any:
    """Returns what `package.module:attribute` names, or one of `known` by its short name.

    Raises:
        UsageError: There is no such thing.
    """
    path = (known or {}).get(name, name)
    module_name, colon, attribute = path.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise usage.unknown(kind, name, [*(known or {}), "package.module:attribute"])
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"The {kind} {name!r} is in no module that can be imported: there is no "
            f"{error.name!r} in this folder or among the installed packages."
        ) from None
    if not hasattr(module, attribute):
        public = [
            entry
            for entry, value in vars(module).items()
            if getattr(value, "__module__", None) == module_name and not entry.startswith("_")
        ]
        raise usage.unknown(f"{kind} in {module_name}", attribute, public)
    return getattr(module, attribute)


def _agent_class(settings: Settings) -> Any:
    agent_class = load_object("agent", settings.agent, AGENTS)
    if not inspect.isclass(agent_class) or not callable(getattr(agent_class, "presets", None)):
        raise UsageError(
            f"{settings.agent} is no agent: it must be a class with `presets()` and the rest of "
            "agents.agent.Agent or agents.search_agent.SearchAgent."
        )
    return agent_class


def _preset(agent_class: Any, settings: Settings) -> Any:
    presets = agent_class.presets()
    if not isinstance(presets, Mapping) or not all(map(dataclasses.is_dataclass, presets.values())):
        raise UsageError(f"{settings.agent}.presets() must map names to dataclasses.")
    is_of_a_paper = settings.env.startswith("atari:") and not is_search(agent_class)
    name = settings.preset or ("paper" if is_of_a_paper else "small")
    if name not in presets:
        raise usage.unknown("preset", name, presets)
    return presets[name]


def _draw(
    name: str, agent: Agent, environment: registry.Environment, settings: Settings
) -> lp.Program:
    from programs import replay_program

    return replay_program.make_program(
        name, agent, environment.make, _options(settings, environment.solved_at)
    )


def _draw_search(
    name: str, agent: SearchAgent, environment: registry.Environment, settings: Settings
) -> lp.Program:
    from programs import ars

    return ars.make_program(
        name, agent, environment.make, _search_options(settings, environment.solved_at)
    )


def _search_options(settings: Settings, solved_at: Optional[float]) -> "SearchOptions":
    from programs import ars

    return ars.SearchOptions(
        num_workers=settings.num_actors,
        max_steps=settings.max_steps,
        solved_at=solved_at if settings.stop_when_solved else None,
        seed=settings.seed,
        checkpoint_seconds=settings.checkpoint_seconds,
        checkpoints_kept=settings.checkpoints_kept,
    )


def _check_standing_replay(agent: Agent, settings: Settings) -> None:
    from programs import replay_program

    replay_program.check_standing_replay(agent, _options(settings, None))


def _notices(agent: Agent, settings: Settings) -> Sequence[str]:
    from programs import replay_program

    return replay_program.notices(agent, _options(settings, None))


def _options(settings: Settings, solved_at: Optional[float]) -> "ReplayOptions":
    from programs import replay_program

    return replay_program.ReplayOptions(
        num_actors=settings.num_actors,
        envs_per_actor=settings.envs_per_actor,
        replay_shards=settings.replay_shards,
        num_learners=settings.num_learners,
        num_reducers=settings.num_reducers,
        async_learners=settings.async_learners,
        max_staleness=settings.max_staleness,
        replay_addresses=settings.replay_addresses,
        max_steps=settings.max_steps,
        solved_at=solved_at if settings.stop_when_solved else None,
        seed=settings.seed,
        checkpoint_seconds=settings.checkpoint_seconds,
        checkpoints_kept=settings.checkpoints_kept,
    )
