"""Regular expressions over names, matched in full, whose work is limited: patterns come from files of anybody.

Python's matcher tries one way after the other, so `(a|a)*b` takes twice as long for every letter of a name. Here all
ways are followed at once (Thompson's construction: Programming techniques, CACM 11, 1968), which takes the length of
the name times the size of the pattern. Patterns that leave few choices, and none within each other, go to Python's
matcher: that is faster, and knows look-around and references to groups.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MAX_STATES = 4_000
"""Of a pattern: `(a{50}){50}` has 2,500."""
CHOICES = 2
"""Repeats and alternatives of a pattern that Python's matcher gets: it takes at most the length of the name to this
power and one more."""
MAX_LENGTH = 400
"""Characters of a name that it gets."""
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_GROUPS = {codes.SUBPATTERN: 3, codes.ATOMIC_GROUP: 0, codes.ASSERT: 1, codes.ASSERT_NOT: 1}
"""Where the pattern inside a group stands in its arguments."""


class NamePattern:
    """A pattern that is ready. Raises `ValueError`, also for one whose work has no limit; `re.error` is one."""

    def __init__(self, text: str) -> None:
        try:
            self._regex = re.compile(text)
            tree = parser.parse(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from error
        self._few = _choices(tree) <= CHOICES
        self._states: list[tuple[Any, ...]] = []
        try:
            if self._regex.flags != re.UNICODE.value:
                raise _NoStatesError("flags")
            self._start = self._add(tree, self._state("end"))
        except (_NoStatesError, RecursionError) as error:
            self._states = []
            if not self._few:
                raise ValueError(
                    f"{error or 'nesting'} beside more than {CHOICES} repeats or alternatives would take "
                    "without limit; write it without"
                ) from error

    def fullmatch(self, name: str) -> bool:
        """Whether all of a name matches."""
        if not self._states or (self._few and len(name) <= MAX_LENGTH):
            return self._regex.fullmatch(name) is not None
        now = self._reach({self._start}, self._places(name, 0))
        for place, letter in enumerate(name, 1):
            taking = (state for state in map(self._states.__getitem__, now) if state[0] == "take")
            after = {state[2] for state in taking if state[1](letter)}
            if not after:
                return False
            now = self._reach(after, self._places(name, place))
        return 0 in now

    @staticmethod
    def _places(name: str, place: int) -> set[Any]:
        """What is true of a place between letters."""
        begins = {codes.AT_BEGINNING, codes.AT_BEGINNING_STRING} if place == 0 else set()
        ends = {codes.AT_END, codes.AT_END_STRING} if place == len(name) else set()
        return begins | ends | ({codes.AT_END} if name[place:] == "\n" else set())

    # -- the states --------------------------------------------------------------------------------------------
    def _state(self, *state: Any) -> int:
        if len(self._states) >= MAX_STATES:
            raise _NoStatesError(f"more than {MAX_STATES} states")
        self._states.append(state)
        return len(self._states) - 1

    def _reach(self, first: set[int], places: set[Any]) -> set[int]:
        """States that are reached without another letter."""
        reached: set[int] = set()
        waiting = list(first)
        while waiting:
            at = waiting.pop()
            if at in reached:
                continue
            reached.add(at)
            state = self._states[at]
            if state[0] == "any of":
                waiting.extend(state[1])
            elif state[0] == "at" and state[1] in places:
                waiting.append(state[2])
        return reached

    def _add(self, tree: Any, end: int) -> int:
        """The state from which a tree leads to `end`."""
        for code, argument in reversed(list(tree)):
            end = self._add_one(code, argument, end)
        return end

    def _add_one(self, code: Any, argument: Any, end: int) -> int:
        if code in _SINGLE:
            return self._state("take", _taker(code, argument), end)
        if code is codes.SUBPATTERN and not argument[1] and not argument[2]:
            return self._add(argument[3], end)
        if code is codes.BRANCH:
            return self._state("any of", [self._add(part, end) for part in argument[1]])
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, body = argument
            return self._add_repeat(least, most, body, end)
        if code is codes.AT and argument not in (codes.AT_BOUNDARY, codes.AT_NON_BOUNDARY):
            return self._state("at", argument, end)
        raise _NoStatesError(str(code).lower().replace("_", " "))

    def _add_repeat(self, least: int, most: Any, body: Any, end: int) -> int:
        if most is codes.MAXREPEAT:
            loop = self._state("any of", [])
            self._states[loop] = ("any of", [self._add(body, loop), end])
            end = loop
        else:
            for _ in range(int(most) - least):
                end = self._state("any of", [self._add(body, end), end])
        for _ in range(least):
            end = self._add(body, end)
        return end


class _NoStatesError(Exception):
    """A pattern has parts that no states stand for."""


_SINGLE = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN)


def _taker(code: Any, argument: Any) -> Any:
    """Whether a letter is taken by a single place of a pattern: Python's own answer for that place alone."""
    if code is codes.LITERAL:
        return chr(argument).__eq__
    if code is codes.NOT_LITERAL:
        return chr(argument).__ne__
    if code is codes.ANY:
        return "\n".__ne__
    return functools.lru_cache(maxsize=None)(functools.partial(_is_in, argument))


def _is_in(parts: Any, letter: str) -> bool:
    value, found, negated = ord(letter), False, False
    for code, argument in parts:
        if code is codes.NEGATE:
            negated = True
        elif code is codes.LITERAL:
            found |= value == argument
        elif code is codes.RANGE:
            found |= argument[0] <= value <= argument[1]
        else:
            found |= _CATEGORIES[argument](letter)
    return found != negated


_CATEGORIES: dict[Any, Any] = {
    codes.CATEGORY_DIGIT: re.compile(r"\d").match,
    codes.CATEGORY_NOT_DIGIT: re.compile(r"\D").match,
    codes.CATEGORY_SPACE: re.compile(r"\s").match,
    codes.CATEGORY_NOT_SPACE: re.compile(r"\S").match,
    codes.CATEGORY_WORD: re.compile(r"\w").match,
    codes.CATEGORY_NOT_WORD: re.compile(r"\W").match,
}
_CATEGORIES = {code: (lambda letter, match=match: match(letter) is not None) for code, match in _CATEGORIES.items()}


def _choices(tree: Any) -> float:
    """Repeats of any number and alternatives in a pattern; infinity where some stand inside a repeat."""
    count = 0.0
    for code, argument in tree:
        inside = sum(map(_choices, _within(code, argument)))
        if code in _REPEATS:
            inside = float("inf") if inside and argument[1] > 1 else inside
            inside += argument[0] != argument[1]
        count += inside + (code is codes.BRANCH) + (code in (codes.GROUPREF, codes.GROUPREF_EXISTS))
    return count


def _within(code: Any, argument: Any) -> Iterator[Any]:
    if code in _REPEATS:
        yield argument[2]
    elif code is codes.ATOMIC_GROUP:
        yield argument
    elif code in _GROUPS:
        yield argument[_GROUPS[code]]
    elif code is codes.BRANCH:
        yield from argument[1]
    elif code is codes.GROUPREF_EXISTS:
        yield from (part for part in argument[1:] if part is not None)


@functools.lru_cache(maxsize=256)
def name_pattern(text: str) -> NamePattern:
    """The pattern of a text, made once. Raises `ValueError` as it does."""
    return NamePattern(text)
