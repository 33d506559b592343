"""Dollars per million tokens."""

import numpy as np
import pytest

from perfmodel.errors import InputError
from perfmodel.price import usd_per_million_tokens


def test_a_price_by_hand():
    # 10 ms a step, 4 tokens for each of 8 requests: 3200 tokens/s, 11.52 M tokens an hour; $ 3.60 an hour
    assert usd_per_million_tokens(np.array(0.010), np.array(4.0), 8, 3.60) == pytest.approx(3.60 / 11.52)


def test_no_price_is_refused():
    for price in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(InputError, match="no price"):
            usd_per_million_tokens(np.array(1.0), np.array(1.0), 1, price)
