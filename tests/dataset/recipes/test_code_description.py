"""The digest of a function changes with all that it uses, and with nothing else."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import data_stack
from data_stack import SequenceDatasetIterator
from data_stack.dataset.recipes.recipe_values import content_if_known
from data_stack.dataset.recipes.stability import code_digest, instability_reason
from data_stack.dataset.recipes.unnamed_values import describe_unnamed
from data_stack.exception import ConfigError


def programs_of(text: str) -> dict[str, str]:
    """The programs of a text by the names in the lines before them."""
    sections = [section.split("\n", 1) for section in text.split("== ")[1:]]
    return {name: program.rstrip("\n") for name, program in sections}


#: Programs with a function ``f``, in which ``{k}`` is what an edit changes.
PROGRAMS = programs_of("""
== its code
def f(s): return s[0] + {k}
== a default
def f(s, k={k}): return s[0] + k
== a keyword default
def f(s, *, k={k}): return s[0] + k
== an inner function
def f(s):
    def g(x): return x + {k}
    return g(s[0])
== a global number
K = {k}
def f(s): return s[0] + K
== a global number of numpy's
import numpy as np
K = np.array([{k}])[0]
def f(s): return s[0] + K
== a global regex
import re
W = re.compile('{k}')
def f(s): return bool(W.match('1'))
== a global regex beside a number
import re
W = re.compile('x')
K = {k}
def f(s): return K + bool(W.match('1'))
== a bound method of a regex
import re
match = re.compile('{k}').match
def f(s): return bool(match('1'))
== a table beside a lock
import threading
L = threading.Lock()
T = {{1: {k}}}
def f(s):
    with L: return T[1]
== a method of a table
get = {{1: {k}}}.get
def f(s): return get(1)
== a global array
import numpy as np
T = np.array([{k}])
def f(s): return T[0]
== a global frame
import pandas as pd
T = pd.DataFrame({{'a': [{k}]}})
def f(s): return int(T.a[0])
== a global tensor
import torch
T = torch.tensor([{k}])
def f(s): return T
== a global set
T = {{{k}, 7}}
def f(s): return s[0] in T
== a global date
import datetime
T = datetime.date(2024, 1, {k})
def f(s): return T
== a global decimal
import decimal
T = decimal.Decimal('1.{k}')
def f(s): return T
== a member of an enum
import enum
class E(enum.Enum):
    A = {k}
T = E.A
def f(s): return T.value
== a global object
class C:
    def __init__(self, k): self.k = k
O = C({k})
def f(s): return O.k
== a global object with slots
class C:
    __slots__ = ('k',)
O = C()
O.k = {k}
def f(s): return O.k
== a subclass of list
class C(list): pass
O = C([{k}])
def f(s): return O[0]
== a method of a global object
class C:
    def m(self): return {k}
O = C()
def f(s): return O.m()
== a function that it calls
def g(x): return x + {k}
def f(s): return g(s[0])
== a function called by one that it calls
def h(): return {k}
def g(): return h()
def f(s): return g()
== functions that call each other
def g(n): return f(n) if n else {k}
def f(s): return g(0)
== a table of functions
def g(x): return {k}
T = {{'g': g}}
def f(s): return T['g'](1)
== a lambda
g = lambda x: x + {k}
def f(s): return g(s[0])
== a class that it makes
class C:
    def m(self): return {k}
def f(s): return C().m()
== a base class
class B:
    def m(self): return {k}
class C(B): pass
def f(s): return C().m()
== a private attribute of a class
class C:
    _K = {k}
def f(s): return C._K
== a property
class C:
    @property
    def p(self): return {k}
def f(s): return C().p
== a cached property
import functools
class C:
    @functools.cached_property
    def p(self): return {k}
def f(s): return C().p
== a metaclass
class M(type):
    def m(cls): return {k}
class C(metaclass=M): pass
def f(s): return C.m()
== a dataclass
import dataclasses
@dataclasses.dataclass
class C:
    k: int = {k}
def f(s): return C().k
== an argument of a decorator
import functools
def add(k):
    def d(g):
        @functools.wraps(g)
        def w(s): return g(s) + k
        return w
    return d
@add({k})
def f(s): return s[0]
== the body of a decorator
import functools
def d(g):
    @functools.wraps(g)
    def w(s): return g(s) + {k}
    return w
@d
def f(s): return s[0]
== what a decorator wraps
import functools
def d(g):
    @functools.wraps(g)
    def w(s): return g(s)
    return w
@d
def f(s): return s[0] + {k}
== a memoized function
import functools
@functools.lru_cache
def f(s): return s[0] + {k}
== a memoized function that it calls
import functools
@functools.cache
def g(): return {k}
def f(s): return g()
== an overload
import functools
@functools.singledispatch
def f(s): return s[0]
@f.register
def _(s: tuple): return s[0] + {k}
== an overload that it calls
import functools
@functools.singledispatch
def g(s): return s[0]
@g.register
def _(s: tuple): return {k}
def f(s): return g(s)
== a class as function
class f(tuple):
    def __new__(cls, s): return (s[0] + {k},)
== an attribute of a class method's class
class A:
    K = {k}
    @classmethod
    def m(cls, s): return cls.K
f = A.m
== a static method
class A:
    @staticmethod
    def m(s): return {k}
f = A.m
== a bound method
class A:
    def __init__(self, k): self.k = k
    def m(self, s): return self.k
f = A({k}).m
== a callable object
class A:
    def __call__(self, s): return {k}
f = A()
== an attribute of the function
def f(s): return f.k
f.k = {k}
== an attribute of a function that it calls
def g(): return g.k
g.k = {k}
def f(s): return g()
== a function given to a partial
import functools
def h(x): return x + {k}
def g(s, fn): return fn(s[0])
f = functools.partial(g, fn=h)
== a partial of a function
import functools
def g(s): return s[0] + {k}
f = functools.partial(g)
== a partial that it calls
import functools
def h(k, x): return x + k
g = functools.partial(h, {k})
def f(s): return g(s[0])
== a partial of a partial
import functools
def h(x, k): return x + {k}
f = functools.partial(functools.partial(h), k=1)
== a function in C with a function
import functools
def g(a, b): return {k}
def f(s): return functools.reduce(g, s)
== a module of the program
import helper_{name}
def f(s): return helper_{name}.K
== a function of a module
import helper_{name}
def f(s): return helper_{name}.g()
== a module imported inside
def f(s):
    from helper_{name} import K
    return K
""")

HELPER = "K = {k}\ndef g(): return {k}\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Loads the function of a program as if it had been edited since."""
    names = ["edited", "helper_edited"]
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(program: str, number: int) -> Any:
        for name in names:
            sys.modules.pop(name, None)
        (tmp_path / "helper_edited.py").write_text(HELPER.format(k=number))
        (tmp_path / "edited.py").write_text(program.format(k=number, name="edited"))
        importlib.invalidate_caches()
        return importlib.import_module("edited").f

    yield load

    for name in names:
        sys.modules.pop(name, None)


def digest(function: Any) -> str | None:
    return code_digest(SequenceDatasetIterator([[1], [2]]).map(function))


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_edit_of_what_a_function_uses_changes_its_digest(
    load: Callable[..., Any], program: str
) -> None:
    source = PROGRAMS[program]

    before = digest(load(source, 1))
    same = digest(load(source, 1))
    moved = digest(load(f"# A comment.\n\n\n{source}", 1))
    edited = digest(load(source, 2))

    assert before is not None
    assert before == same == moved
    assert before != edited


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_used_is_known(load: Callable[..., Any], program: str) -> None:
    function = load(PROGRAMS[program], 1)
    if program in ("a callable object", "a bound method"):
        return  # its name says nothing of its object

    assert instability_reason(SequenceDatasetIterator([[1], [2]]).map(function)) is None


def test_digests_are_those_of_another_process(tmp_path: Path) -> None:
    program = (
        "import importlib, sys\n"
        f"sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(tmp_path)!r}]\n"
        "from test_code_description import HELPER, PROGRAMS, digest\n"
        "from pathlib import Path\n"
        "light = [each for each in PROGRAMS.values() if 'torch' not in each and 'pandas' not in each]\n"
        "for number, source in enumerate(light):\n"
        f"    folder = Path({str(tmp_path)!r})\n"
        "    (folder / f'helper_n{number}.py').write_text(HELPER.format(k=1))\n"
        "    (folder / f'n{number}.py').write_text(source.format(k=1, name=f'n{number}'))\n"
        "importlib.invalidate_caches()\n"
        "print([digest(importlib.import_module(f'n{n}').f) for n in range(len(light))])\n"
    )
    path = str(Path(data_stack.__file__).parent.parent)

    prints = {
        subprocess.check_output(
            [sys.executable, "-B", "-c", program], env={"PYTHONPATH": path, "PYTHONHASHSEED": seed}
        )
        for seed in "01"
    }

    assert len(prints) == 1


UNKNOWN = programs_of("""
== a generator
I = (n for n in [{k}])
def f(s): return next(I, 0)
== an object in a function that it calls
import threading
T = threading.Thread()
def g(): return T.name
def f(s): return g()
== an object in an object
class C: pass
O = C()
O.o = (n for n in [{k}])
def f(s): return O.o
== an object in a table
T = {{1: memoryview(b'{k}')}}
def f(s): return T[1]
""")


@pytest.mark.parametrize("program", UNKNOWN)
def test_what_is_unknown_is_said_and_needs_a_version(
    load: Callable[..., Any], tmp_path: Path, program: str
) -> None:
    function = load(UNKNOWN[program], 1)
    samples = SequenceDatasetIterator([[1], [2]]).map(function)

    reason = instability_reason(samples)

    assert reason is not None
    assert "uses an object of" in reason
    with pytest.raises(ConfigError, match="no reliable fingerprint"):
        samples.cache(storage=tmp_path / "cache")
    samples.cache(storage=tmp_path / "cache", version="1")


def test_one_unknown_global_does_not_drop_the_others(load: Callable[..., Any]) -> None:
    source = "I = (n for n in [1])\nK = {k}\ndef f(s): return next(I, K)"

    assert digest(load(source, 1)) == digest(load(source, 1)) != digest(load(source, 2))


def test_functions_of_packages_count_by_name() -> None:
    import numpy as np

    assert digest(np.log) is None  # it has no code in Python
    assert digest(np.mean) == digest(np.mean) != digest(np.median)
    assert instability_reason(SequenceDatasetIterator([[1]]).map(np.mean)) is None


def test_a_stored_cache_of_an_edited_function_is_made_again(
    load: Callable[..., Any], tmp_path: Path
) -> None:
    def read(number: int) -> Any:
        function = load(PROGRAMS["an argument of a decorator"], number)
        samples = SequenceDatasetIterator([[1, 2]]).map(function)
        return list(samples.cache(storage=tmp_path / "cache"))

    assert read(1) == [2, 3]
    assert read(2) == [3, 4]


def test_what_cannot_be_described_equals_nothing_else() -> None:
    def make(value: Any) -> str:
        return describe_unnamed({"value": value}, content_if_known)  # a temporary dict

    lock = threading.Lock()

    assert len({make(threading.Lock()) for _ in range(100)}) == 100
    assert len({describe_unnamed(threading.Lock(), content_if_known) for _ in range(100)}) == 100
    assert describe_unnamed(lock, content_if_known) == describe_unnamed(lock, content_if_known)
