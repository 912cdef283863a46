"""The bank of wrong answers that people really give, and of right ones written another way.

`NN_module.py` holds `ANSWERS`, a list of `Wrong` and `Right` for the exercises of that module.
tests/test_misconceptions.py puts each in the place of the solution and looks at what the self-check says.
"""
from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Answer:
    """An answer to one exercise.

    `body` is the code that stands in place of the solution, written from column 0. For an exercise with several
    solution regions it is a dict {index of the region: code}; the other regions keep the solution.
    """
    exercise: str
    name: str
    body: str | dict[int, str] = field(kw_only=True)


@dataclass(frozen=True)
class Right(Answer):
    """An answer that all checks of its exercise must accept, without a warning."""


@dataclass(frozen=True)
class Wrong(Answer):
    """An answer that a check of its exercise must refuse, with an AssertionError whose message contains `says`."""
    says: str = field(kw_only=True)
