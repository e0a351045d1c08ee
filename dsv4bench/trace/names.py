"""Kernel names: a readable form, a short form, and a form in which two tools' spellings of one kernel are equal.

`demangle` resolves the leading qualified name of an Itanium-mangled symbol and elides its template arguments; it is
no full demangler, and the raw name is always kept beside it. `short_name` drops return type, template arguments and
parameters and keeps the namespaces. `normalise` keeps the template arguments and drops what profilers spell each in
their own way (namespaces, casts, `const`, lambda notation, parameters), since ncu prints `void Kernel2<X>(Params)`
for what a timeline calls `void cutlass::Kernel2<X>(X::Params)`. No name proves which unit a kernel runs on.
"""

from __future__ import annotations

import re
from functools import lru_cache

ANONYMOUS = "(anonymous namespace)"
_ANONYMOUS_SPELLINGS = re.compile(r"<unnamed>|`anonymous namespace'|\{anonymous\}")
_PLAIN = re.compile(r"[\w.$@-]+")
_LAMBDA = re.compile(r"::\{lambda\([^{}]*?\)#(\d+)\}|::\[lambda\([^\[\]]*?\) \(instance (\d+)\)\]")
_CALL_OPERATOR = re.compile(r"::operator ?\(\) ?\(\)(?: const)?")
_INTEGER_SUFFIX = re.compile(r"(?<![\w.])(-?\d+)[uUlL]+\b")
_QUALIFIER = re.compile(r"(?:\b[A-Za-z_]\w*|\(anonymous namespace\))::")
_LENGTH = re.compile(r"\d{1,4}")
_LITERALS = (ANONYMOUS, "operator()", "operator ()")
_BRACKETS = {"<": ">", "(": ")", "[": "]", "{": "}"}
_WORDS = re.compile(r"\b(?:const|void|typename|struct|class)\b")


def spellings(raw: str) -> tuple[str, str, str]:
    """(raw, demangled, short), as `KernelTrace.kernel_names` holds them."""
    demangled = demangle(raw)
    return raw, demangled, short_name(demangled)


@lru_cache(maxsize=65536)
def demangle(raw: str) -> str:
    """`_ZN2at6native13reduce_kernelILi512E…` -> `at::native::reduce_kernel<...>`; any other name as it is."""
    if not raw.startswith("_Z"):
        return raw
    try:
        parts = _qualified(raw, 2)
    except (IndexError, ValueError):
        return raw
    return "::".join(parts) if parts else raw


@lru_cache(maxsize=65536)
def short_name(name: str) -> str:
    """The qualified name of the function alone: `void a::(anonymous namespace)::f<int>(int*)` -> `a::(…)::f`."""
    if _PLAIN.fullmatch(name):
        return name
    outline = _outline(_ANONYMOUS_SPELLINGS.sub(ANONYMOUS, name))
    words = [w for w in outline.replace(ANONYMOUS, "\0").split(" ") if w and w != "const"]
    last = words[-1].replace("\0", ANONYMOUS).strip(":&*") if words else ""
    return last or name


def base_name(name: str) -> str:
    """The function's own identifier, without namespaces: what ncu calls the function name."""
    return short_name(demangle(name)).replace(ANONYMOUS, "").rsplit("::", 1)[-1]


@lru_cache(maxsize=65536)
def normalise(name: str) -> str:
    """One spelling for all tools: `base<arguments>`, or the base alone where the name shows no arguments.

    Equal for one kernel in nsys, Kineto and ncu; grid and block must be compared too, for one kernel at two shapes
    is two measurements.
    """
    readable = _ANONYMOUS_SPELLINGS.sub(ANONYMOUS, demangle(name))
    base = base_name(readable)
    arguments = _arguments(readable, base)
    return f"{base}<{_canonical(arguments)}>" if arguments else base


def _outline(name: str) -> str:
    """The characters outside all brackets; `operator()` and the anonymous namespace stand as they are."""
    kept: list[str] = []
    closers: list[str] = []
    i = 0
    while i < len(name):
        literal = next((x for x in _LITERALS if name.startswith(x, i)), None) if not closers else None
        char = name[i]
        if literal is not None:
            kept.append(literal)
        elif char in _BRACKETS:
            closers.append(_BRACKETS[char])
        elif closers and char == closers[-1]:
            closers.pop()
        elif not closers:
            kept.append(char)
        i += len(literal or char)
    return "".join(kept)


def _arguments(name: str, base: str) -> str:
    """The template arguments of the function itself, without the brackets; a cut-off name gives what is there."""
    for found in re.finditer(rf"(?<![\w]){re.escape(base)}<", name):
        depth = 1
        for i in range(found.end(), len(name)):
            depth += (name[i] == "<") - (name[i] == ">" and name[i - 1] != "-")
            if depth == 0:
                return "" if name[found.end() : i] == "..." else name[found.end() : i]
        return name[found.end() :]
    return ""


def _canonical(arguments: str) -> str:
    text = _CALL_OPERATOR.sub("", arguments)
    text = _LAMBDA.sub(lambda m: f"/lambda{m.group(1) or m.group(2)}", text)
    text = _without_parentheses(text.replace(ANONYMOUS + "::", ""))
    text = _INTEGER_SUFFIX.sub(r"\1", text)
    text = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", text))
    return re.sub(r"\s+", "", _WORDS.sub("", _QUALIFIER.sub("", text)))


def _without_parentheses(text: str) -> str:
    kept, depth = [], 0
    for char in text:
        depth += char == "("
        if depth == 0:
            kept.append(char)
        depth -= char == ")" and depth > 0
    return "".join(kept)


def _qualified(symbol: str, at: int) -> list[str]:
    """The identifiers of a mangled name from `at`; template arguments become `<...>` on their identifier."""
    if symbol[at] != "N":
        at += symbol[at] == "L"
        name, at = _identifier(symbol, at)
        return [name + "<...>" if symbol[at : at + 1] == "I" else name]
    at += 1
    while symbol[at] in "rVKRO":
        at += 1
    parts: list[str] = []
    while symbol[at] != "E":
        if symbol[at] == "I":
            parts[-1] += "<...>"
            try:
                at = _after(symbol, at)
            except (IndexError, ValueError):  # cut off by its tool: what stands before is the name
                return parts
        elif symbol.startswith("St", at):
            parts.append("std")
            at += 2
        else:
            at += symbol[at] == "L"
            name, at = _identifier(symbol, at)
            parts.append(name)
    return parts


def _identifier(symbol: str, at: int) -> tuple[str, int]:
    length = _LENGTH.match(symbol, at)
    end = length.end() + int(length.group()) if length else 0
    if length is None or end > len(symbol):
        raise ValueError(symbol)
    name = symbol[length.end() : end]
    return ANONYMOUS if name.startswith("_GLOBAL__N_") else name, end


_ATOM = re.compile(r"L[a-z]n?\d+E|DF\d+[b_x]|S[0-9A-Z]*_|S[tabsiod]|T\d*_|A\d*_|_Z|U[^l]|D[^Tt]")
_OPENER = re.compile(r"D[Tt]|Ul|[INXJFZL]")
_VALUE = re.compile(r"n?\d+(?=E)")


def _after(symbol: str, at: int) -> int:
    """The index after the bracketed part that opens at `at` (`I … E`)."""
    open_parts: list[str] = []
    while True:
        if symbol[at] == "E":
            open_parts.pop()
            at += 1
            if not open_parts:
                return at
            value = _VALUE.match(symbol, at) if open_parts[-1] == "L" else None  # of an enum: LN…E1E
            at = value.end() if value else at
        elif symbol[at].isdigit():
            _, at = _identifier(symbol, at)
        elif atom := _ATOM.match(symbol, at):
            at = atom.end()
        elif opener := _OPENER.match(symbol, at):
            open_parts.append(opener.group())
            at = opener.end()
        else:
            at += 1
