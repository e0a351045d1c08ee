"""Rule files into `Rules`: which kernel is which component, and which name proves its unit.

    components:
      - {component: moe, contains: [my_expert_kernel], note: our experts}
    units:
      - {runs_on: tensor, contains: [s16816]}

A user's files come before the packaged ones (`rule_files/`), in the order given; the first rule that matches wins. A
rule has `contains` or `regex`, never both and never neither, and no empty fragment, which would match every name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.records.rules import COMPONENTS, ComponentRule, Rules, UnitRule
from dsv4bench.scenario.reading import line_of, read_text, read_yaml

PACKAGED = Path(__file__).parent / "rule_files"
HINT = "a rule is {component: moe, contains: [fragment]} or {component: moe, regex: '…'}; see docs/profile.md"


class RuleFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    components: list[ComponentRule] = msgspec.field(default_factory=list)
    units: list[UnitRule] = msgspec.field(default_factory=list)


def load_rules(extra: Sequence[Path] = ()) -> Rules:
    """The user's rules, then the packaged ones. Raises UsageError naming file, line and key."""
    packaged = [p for name in ("components.yaml", "units.yaml") if (p := PACKAGED / name).is_file()]
    paths = [*extra, *packaged]
    files = [read_rules(path) for path in paths]
    return Rules(
        components=[rule for file in files for rule in file.components],
        units=[rule for file in files for rule in file.units],
        source=[*(str(path) for path in extra), *(path.name for path in packaged)],
    )


def read_rules(path: Path) -> RuleFile:
    """One file, checked. Raises UsageError."""
    rules = read_yaml(path, RuleFile, HINT)
    for i, component in enumerate(rules.components):
        if component.component not in COMPONENTS:
            known = " ".join(COMPONENTS)
            _refuse(
                path, ["components", i, "component"], f"unknown component {component.component!r}", f"use {known}"
            )
        _check(path, ["components", i], component)
    for i, unit in enumerate(rules.units):
        _check(path, ["units", i], unit)
    return rules


def _check(path: Path, key: list[str | int], rule: ComponentRule | UnitRule) -> None:
    if bool(rule.contains) == (rule.regex is not None):
        _refuse(path, key, "a rule needs `contains` or `regex`, and not both")
    for field in ("contains", "without"):
        if "" in getattr(rule, field):
            _refuse(path, [*key, field], "an empty fragment would match every kernel")
    if rule.regex is None:
        return
    try:
        pattern = re.compile(rule.regex)
    except re.error as e:
        _refuse(path, [*key, "regex"], f"not a regular expression: {e} in {rule.regex!r}")
    if pattern.search("") is not None:
        _refuse(path, [*key, "regex"], f"{rule.regex!r} would match every kernel")


def _refuse(path: Path, key: list[str | int], problem: str, hint: str = HINT) -> None:
    line = line_of(read_text(path, hint), key)
    dotted = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in key)
    raise UsageError(f"{path}:{line}: {problem} - at `${dotted}`", hint)
