"""Rules that tests score inputs by."""


def begins_with_zero(x):
    return (x[:, 0] == 0).astype(float)
