"""What candidates are compared on: the samples held out, or also those they were fitted to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hexport import facts
from hexport.quantization.judging import Judge, Samples
from hexport.quantization.plan import SCHEMES, plan_for
from hexport.toolchain import Limits
from quantised_graphs import PLAIN, cnn, quantised, sqnr, workshop
from rule_checks import TARGET, cpu, random_feeds


@pytest.mark.parametrize("workers", [0, 2])
def test_unseen_samples_and_after_them_those_it_was_fitted_to(tmp_path: Path, workers: int) -> None:
    proto = cnn()
    shop = workshop(proto, tmp_path)
    feeds = [random_feeds(proto, seed) for seed in range(10, 15)]
    exact = [{"y": cpu(proto, each)[0]} for each in feeds]
    asked: list[int] = []

    def find_others(count: int) -> Samples:
        asked.append(count)
        return feeds[2:], exact[2:]

    coarse, fine = (plan_for(shop.model, SCHEMES[scheme], shop.arch) for scheme in ("8a8w", "16a8w"))
    models = [shop.build(plan, PLAIN) for plan in (coarse, fine)]
    with ThreadPoolExecutor(workers or 1) as pool:
        judge = Judge(
            facts.find_target(TARGET),
            feeds[:2],
            exact[:2],
            tmp_path,
            Limits(),
            executor=pool if workers else None,
            find_others=find_others,
        )
        unseen, both = judge.on_cpu(*models), judge.widely_on_cpu(3, *models)
    assert asked == [3]
    assert not list(tmp_path.glob("quantised*")), "nothing is left behind"
    for plan, few, most in zip((coarse, fine), unseen, both, strict=True):
        each = [sqnr(proto, quantised(shop, plan), feed)[0] for feed in feeds]
        # The judge's sums are cut off as the NPU's are, plain arithmetic's are not.
        assert few.lowest_db == pytest.approx(min(each[:2]), abs=1.0)
        assert most.sqnr_db == pytest.approx(sorted(each)[2], abs=1.0)
        assert most.worst_sample == each.index(min(each))


def test_what_turned_out_hard_is_judged_on_too(tmp_path: Path) -> None:
    proto = cnn()
    shop = workshop(proto, tmp_path)
    feeds = [random_feeds(proto, seed) for seed in range(10, 13)]
    exact = [{"y": cpu(proto, each)[0]} for each in feeds]
    others = feeds[1:], exact[1:]
    judge = Judge(
        facts.find_target(TARGET), feeds[:1], exact[:1], tmp_path, Limits(), find_others=lambda _: others
    )
    plan = plan_for(shop.model, SCHEMES["8a8w"], shop.arch)
    model = shop.build(plan, PLAIN)
    judge.others(2)
    assert judge.hard_on_cpu(model) is None
    for _ in range(2):
        judge.mind(1)
    assert judge.hard == ([feeds[2]], [exact[2]]), "once, however often it is worst"
    hard = judge.hard_on_cpu(model)
    assert hard is not None
    assert hard.lowest_db == pytest.approx(sqnr(proto, quantised(shop, plan), feeds[2])[0], abs=1.0)
