"""Which rank is waited for, why, and whether it hangs. Pure: frames in, verdicts out."""
