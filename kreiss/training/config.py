"""From names and values to the settings of a run: presets, YAML or TOML files, and the command line."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from kreiss.errors import InputError, in_bytes
from kreiss.networks.building import NETWORKS, network_named
from kreiss.options import Option, options_of, sentence, typed_options
from kreiss.settings import (
    SECTIONS,
    SHORT,
    Config,
    GivenModel,
    NetworkSettings,
    RecurrentSettings,
    Section,
    TaskSection,
)
from kreiss.tasks import TASKS, task_named

LARGEST_FILE = 10**6  # bytes of a file of settings
DEEPEST, MOST = 20, 10_000  # levels and values in it, aliases expanded


# section, former name in recorded settings, current name
FORMER = (("optimiser", "radius", "radius_penalty"), ("task", "target", "targets"))


# ---------------------------------------------------------------- from names and values to a Config


def resolved(
    *sources: Mapping[str, Any],
    given: Mapping[str, dict[str, Any]] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """The settings of several sources, each overriding those before it.

    Args:
        sources: settings by nested, dotted or short names.
        given: settings of a task or model passed as an object, by "task" or "model"; they replace those of the sources
            and need not be buildable.
        defaults: those of a task passed as an object; those of a task's class by default.
    """
    names: dict[str, Any] = {}
    for source in sources:
        names.update(dotted(source))
    _check_names(names)
    known = given or {}
    names = {**_defaults(names, defaults), **names}
    tree: dict[str, Any] = {}
    for name, value in names.items():
        section, _, rest = name.rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[rest] = value
    tree["task"] = known.get("task") or _task(tree.get("task", {}))
    tree["model"] = _given_model(known["model"]) if "model" in known else _model(tree.get("model", {}))
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise sentence(error) from error
    if config.steps and config.epochs:
        raise InputError(
            f"either `steps` or `epochs` must be given; got steps={config.steps} and epochs={config.epochs}. "
            "Leave one out."
        )
    if config.stop_metric is not None and config.stop_at is None:
        raise InputError(
            f"`stop_at` must be given with `stop_metric`; got stop_metric={config.stop_metric!r} alone. Say at which "
            "value to stop, or leave it out."
        )
    if config.accumulate > config.batch:
        raise InputError(
            f"`accumulate` must be at most `batch`, a sequence for each piece; got accumulate={config.accumulate} and "
            f"batch={config.batch}. Lower it."
        )
    if config.optimiser.clip_norm is not None and config.optimiser.clip_value is not None:
        raise InputError(
            f"gradients must be clipped by norm or by value; got clip_norm={config.optimiser.clip_norm} and "
            f"clip_value={config.optimiser.clip_value}. Leave one out."
        )
    return config


def _defaults(names: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Defaults that the task sets; those of its network only if that has such a setting."""
    name = names.get("task.name")
    chosen = given if given is not None else task_named(name).settings if isinstance(name, str) else {}
    model = names.get("model.name", RecurrentSettings.model_fields["name"].default)
    has = (NETWORKS[model].Settings if model in NETWORKS else RecurrentSettings).model_fields
    return {name: value for name, value in chosen.items() if not name.startswith("model.") or name[6:] in has}


def dotted(source: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested, dotted and short names as dotted ones; dashes as underscores."""
    names: dict[str, Any] = {}
    for key, value in source.items():
        name = prefix + str(key).replace("-", "_")
        if isinstance(value, Mapping):
            names.update(dotted(value, f"{name}."))
        else:
            names[SHORT.get(name, name)] = value
    return names


def _check_names(names: Mapping[str, Any]) -> None:
    """Raise for an unknown name, with the closest match."""
    known = [name for name in Config.model_fields if name not in SECTIONS] + [*SHORT]
    for section in SECTIONS:
        known += [f"{section}.{name}" for name in _fields(section)]
    for name in names:
        if name not in known and name.rpartition(".")[0] not in ("task", "model"):  # their classes check these
            raise _unknown(name, known)


def _unknown(name: str, known: list[str]) -> InputError:
    section, _, key = name.partition(".")
    own = [] if section in SECTIONS else [f"task.{key}", f"model.{key}"]  # options of a class
    close = difflib.get_close_matches(name, known + own, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return InputError(f"unknown setting {name!r}.{hint} `kreiss show config` lists all of them.")


def _fields(section: str) -> dict[str, Any]:
    """The fields of a section; for the model, those of every network."""
    if section == "model":
        return {name: field for cls in NETWORKS.values() for name, field in cls.Settings.model_fields.items()}
    kind: Any = Config.model_fields[section].annotation
    return dict(kind.model_fields)


def _task(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a task, with its own options in their types."""
    name = settings.setdefault("name", TaskSection.model_fields["name"].default)
    return _typed("task", settings, options_of(task_named(name)), TaskSection)


def _model(settings: dict[str, Any]) -> NetworkSettings:
    """Settings of a network, in the section of its kind."""
    name = settings.setdefault("name", RecurrentSettings.model_fields["name"].default)
    network = network_named(name)
    typed = _typed("model", settings, network.options(name), network.Settings)
    try:
        return network.Settings.model_validate(typed)
    except ValidationError as error:
        raise sentence(error, section="model") from error


def _given_model(known: dict[str, Any]) -> NetworkSettings:
    """Settings of a model passed as an object: all of its network's, or those that are known."""
    kind = NETWORKS[known["name"]].Settings if known["name"] in NETWORKS else RecurrentSettings
    try:
        return (kind if kind.model_fields.keys() <= known.keys() else GivenModel)(**known)
    except ValidationError as error:
        raise sentence(error, section="model") from error


def _typed(section: str, settings: dict[str, Any], known: dict[str, Option], kind: type[Section]) -> dict[str, Any]:
    """`settings` with the options that are not fields of the section in their types; an error for unknown ones."""
    fields = kind.model_fields
    for key in settings:
        if key not in known and key not in fields:
            raise _unknown(f"{section}.{key}", [f"{section}.{other}" for other in (*known, *fields)])
    special = {key: value for key, value in settings.items() if key not in fields}
    return {**settings, **typed_options(section, special, known)}


def own_options(section: Section) -> dict[str, Any]:
    """The options of a section that belong to the chosen task or layer alone."""
    return dict(section.model_extra or {})


# ---------------------------------------------------------------- files and words


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a YAML or TOML file; neither can run code."""
    text = _text(path)
    try:
        settings = _toml(path, text) if path.suffix == ".toml" else _yaml(path, text)
    except InputError:
        raise
    except RecursionError:  # of a parser
        raise _too_much(path) from None
    except (ValueError, yaml.YAMLError) as error:
        kind = "TOML" if path.suffix == ".toml" else "YAML"
        plain = not isinstance(error, (tomllib.TOMLDecodeError, yaml.YAMLError))
        where = "a number or date is out of range" if plain else " ".join(str(error).split())
        raise InputError(f"`{path}` must be {kind}; got a file that is not: {where}. Correct it.") from error
    if settings is not None and not isinstance(settings, dict):
        raise InputError(
            f"`{path}` must hold names and values; got a {type(settings).__name__}. Write `name: value` lines."
        )
    return up_to_date(settings or {})


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(
                f"`{path}` must be a file of settings of at most {in_bytes(LARGEST_FILE)}; got "
                f"{in_bytes(path.stat().st_size)}. Check the name."
            )
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"`{path}` must be a readable text file; got {_why(error)}. Check the name.") from error


def _toml(path: Path, text: str) -> Any:
    settings = tomllib.loads(text)
    _check_amount(path, settings)
    return settings


def _yaml(path: Path, text: str) -> Any:
    loader = yaml.SafeLoader(text)
    node = loader.get_single_node()
    _check_amount(path, node)  # before its aliases are expanded
    return None if node is None else loader.construct_document(node)


def _check_amount(path: Path, root: Any) -> None:
    """Raise for settings that are too many or too deep; a few lines of YAML with aliases can be either."""
    waiting, count = [(root, 0)], 0
    while waiting:
        value, depth = waiting.pop()
        inside = _parts(value)
        count += len(inside)
        if depth > DEEPEST or count > MOST:
            raise _too_much(path)
        waiting += [(part, depth + 1) for part in inside]


def _parts(value: Any) -> list[Any]:
    """What a mapping or list of TOML, or a node of YAML, holds."""
    if isinstance(value, yaml.MappingNode):
        return [part for pair in value.value for part in pair]
    if isinstance(value, (dict, yaml.SequenceNode)):
        return list(value.values() if isinstance(value, dict) else value.value)
    return value if isinstance(value, list) else []


def _too_much(path: Path) -> InputError:
    return InputError(
        f"`{path}` must hold at most {MOST} settings in {DEEPEST} levels; got more, or a part that contains itself. "
        "Write plain `name: value` lines."
    )


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def plain(config: Config) -> dict[str, Any]:
    """All settings as plain values."""
    settings: dict[str, Any] = json.loads(config.model_dump_json())
    return settings


def written(config: Config) -> str:
    """All settings as YAML, which `read_settings` reads back to the same."""
    return yaml.safe_dump(plain(config), sort_keys=False)


def changed(config: Config) -> dict[str, Any]:
    """Settings that differ from their defaults, by dotted name."""
    own: dict[str, dict[str, Option]] = {
        "task": options_of(TASKS[config.task.name]) if config.task.name in TASKS else {},
        "model": NETWORKS[config.model.name].options(config.model.name) if config.model.name in NETWORKS else {},
    }
    defaults: dict[str, Any] = {name: field.default for name, field in Config.model_fields.items()}
    for section in SECTIONS:
        fields = type(getattr(config, section)).model_fields
        defaults |= {f"{section}.{name}": option.default for name, option in own.get(section, {}).items()}
        defaults |= {f"{section}.{name}": field.default for name, field in fields.items()}
    return {
        name: value
        for name, value in dotted(plain(config)).items()
        if name not in defaults or value != json.loads(json.dumps(defaults[name], default=str))
    }


def up_to_date(recorded: dict[str, Any]) -> dict[str, Any]:
    """Settings that an earlier version recorded, under their current names."""
    return _renamed(recorded, FORMER)


def as_first_named(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings under their original names, from which the keys of recorded results are computed."""
    return _renamed(settings, tuple((section, today, former) for section, former, today in FORMER))


def first_name(name: str) -> str:
    """The dotted name that a setting first had, under which searches record it."""
    return next((f"{section}.{former}" for section, former, now in FORMER if name == f"{section}.{now}"), name)


def current_name(name: str) -> str:
    """The dotted name of a setting today."""
    return next((f"{section}.{now}" for section, former, now in FORMER if name == f"{section}.{former}"), name)


def _renamed(settings: dict[str, Any], names: tuple[tuple[str, str, str], ...]) -> dict[str, Any]:
    changed = {**settings}
    for section, before, after in names:
        if before in (found := changed.get(section) or {}):
            value = found[before] if found.get(after) is None else found[after]  # earlier versions had some of both
            rest = {after if name == before else name: v for name, v in found.items()}
            changed[section] = {**rest, after: value}
    return changed


def words(tokens: tuple[str, ...]) -> tuple[list[str], dict[str, Any]]:
    """Plain words of a command line, and the settings in `--name value`, `--name=value` and bare `--name`."""
    plain: list[str] = []
    settings: dict[str, Any] = {}
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        if not token.startswith("--"):
            plain.append(token)
            continue
        name, equals, value = token.removeprefix("--").partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        settings[name] = scalar(value)
    return plain, settings


def scalar(text: str) -> Any:
    """A word of the command line as number, boolean, None, list or text."""
    try:
        return {"true": True, "false": False, "null": None, "none": None}[text.lower()]
    except KeyError:
        pass
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    try:
        return json.loads(text) if text.startswith("[") else text
    except ValueError:
        return text
