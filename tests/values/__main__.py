"""`python -m tests.values`: every special value through every module, and what differs."""

import os
import sys

os.environ["TBUDA_CACHE"] = "off"

from tests.values.sweep import EXACT, NAMED, VALUES, differences


def main() -> int:
    wrong = 0
    for name, function in EXACT.items():
        for d in differences(name, function):
            wrong += 1
            print(f"{d.module}: {d.value}: {d.text}", flush=True)
    for name, (rule, function) in NAMED.items():
        for d in differences(name, function):
            print(f"{d.module}: {d.value}: {rule}: {d.text}", flush=True)
    print(f"{(len(EXACT) + len(NAMED)) * len(VALUES)} comparisons, {wrong} without a rule")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
