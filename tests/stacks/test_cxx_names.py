"""C++ names as tools print them, and what is left of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.stacks.cxx_names import MAX_NAME, short_name


@pytest.mark.parametrize(("name", "short"), [
    ("c10d::Work::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >)", "c10d::Work::wait"),
    ("gloo::(anonymous namespace)::ring(int*, std::function<void (unsigned long)>)", "gloo::ring"),
    ("pybind11::cpp_function::initialize<A<B>, C>(D&&)::{lambda(E&)#3}::_FUN(E&)",
     "pybind11::cpp_function::initialize::_FUN"),
    ("at::Tensor::operator()(int) const", "at::Tensor::operator()"),
    ("std::ostream& operator<< <char>(std::ostream&, char const*)", "std::ostream& operator<<"),
    ("a::operator->() const", "a::operator->"),
    ("clock_nanosleep@GLIBC_2.2.5", "clock_nanosleep"),
    ("run(int) [clone .isra.0]", "run"),
    ("poll", "poll"),
    ("0x7f2ef98a3f16", "0x7f2ef98a3f16"),
    ("odd<name", "odd<name"),
    ("(", "("),
    ("bell\x07", "bell "),
    ("", ""),
])  # fmt: skip
def test_templates_and_parameters_go(name: str, short: str) -> None:
    assert short_name(name) == short


@given(st.text(max_size=80))
def test_any_name_becomes_one_printable_line(name: str) -> None:
    assert short_name(name).isprintable()
    assert len(short_name(name * 100)) <= MAX_NAME
