"""A regular expression of rank 1 backtracks for years and never releases the GIL."""

import re

import torch

from zoo.rank import fault, join

# It computes, and frtop cannot know that it never ends: only the cause matters.
CASE = fault("not_entered", 1, "gil", progress="active", says="clean")


def clean(text: str) -> str:
    return re.sub(r"(\w+\s?)+$", "", text)


job = join()
gradient = torch.ones(1000)
for odd in job.steps(1):
    text = "a few words"
    if odd:
        text = "a" * 60 + "!"
    gradient += len(clean(text))
    job.all_reduce(gradient)
