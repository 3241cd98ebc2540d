"""Whole runs that look ahead: the density is exact, bits are those of any number of ranks."""

from dataclasses import fields, replace

import numpy as np
import pytest
import run_tools
from language_folders import save_decoder
from planted_passages import planted_passages
from runs_in_progress import WORLD, begin

from omniinput_hpc.cli import run as launch
from omniinput_hpc.config import input_file
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.kernels.lm_conditional import LmConditional
from omniinput_hpc.kernels.look_ahead.continuations import Texts
from omniinput_hpc.parallel.signals import StopRequest
from omniinput_hpc.parallel.stopping import StopCheck, StopRun
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import build, loop, restart
from omniinput_hpc.sampling.rung import Rung
from omniinput_hpc.sampling.walkers import Walkers

INPUT = """
[run]
output = "{output}"
seed = 5
rounds = 2
burn_in = 4
[model]
kind = "python"
factory = "planted_passages:planted_passages"
options = {{ n_sites = 9, n_values = 24, n_passages = 3, enter_bits = 10 }}
[sampler]
walkers = 8
steps = 3
exchanges = 2
[ladder]
betas = [0.0, 4.0, 6.0, 8.0, 9.6, 12.0]
[kernel]
name = "lm-conditional"
look_ahead = true
[bins]
lower = -0.01
upper = 19.99
width = 0.2
[samples]
every = 3
"""


def write(tmp_path, name="run"):
    toml = tmp_path / f"{name}.toml"
    toml.write_text(INPUT.format(output=tmp_path / f"{name}.h5"))
    return toml, tmp_path / f"{name}.h5"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    toml, path = write(tmp_path_factory.mktemp("whole"))
    assert launch.main([str(toml)]) == 0
    return path


def test_cold_rungs_learn_and_keep_what_they_learned(whole):
    with open_run(whole) as run:
        stored = np.array([rung.tuned for rung in run.checkpoint(range(6)).rungs])
    config = input_file.parse(INPUT.format(output="run.h5"), "input")
    assert stored.shape == (6, config.kernel.n_tuned)
    assert (stored[:4] == 0).all(), "at b <= 1 nothing is learned"
    assert (stored[4:, 2] > 0).all(), "contexts"
    np.testing.assert_allclose(stored[4:, 0], [1.2, 1.5])


def test_a_burn_in_in_which_nothing_can_be_learned_is_refused(tmp_path, capsys):
    toml, path = write(tmp_path)
    assert launch.main([str(toml), "--set", "run.burn_in=3"]) == 2
    assert "run.burn_in = 3" in capsys.readouterr().err
    assert not path.exists()


UNSAID = INPUT.replace("look_ahead = true\n", "")


def decided(*changes, n_sites=9):
    """Return the kernel's keys, with m = 8, after `look_ahead` was decided."""
    config = input_file.parse(UNSAID.format(output="run.h5"), "input", changes)
    return config.with_look_ahead(n_sites, m=8.0).kernel.model_dump()


@pytest.mark.parametrize(("ahead", "changes"), [
    (True, []),
    (True, ["ladder.betas=[8.0, 8.1]"]),
    (False, ["ladder.betas=[0.0, 4.0, 8.0]"]),
    (False, ["ladder.betas=[4.0, 9.0]", "ladder.kappa=[0.0, 2.0]", "ladder.z0=[0.0, 1.0]"]),
    (False, ["run.burn_in=3"]),
    (False, ["kernel.look_ahead=false"]),
    (False, ["sampler.method=ancestral", "samples.every=1"]),
])  # fmt: skip
def test_look_ahead_is_the_default_beyond_m(ahead, changes):
    assert decided(*changes)["look_ahead"] is ahead


def test_inputs_that_are_too_short_to_learn_from_do_not_look_ahead():
    assert decided(n_sites=5)["look_ahead"] and not decided(n_sites=4)["look_ahead"]


def test_an_explicit_look_ahead_is_kept():
    config = input_file.parse(INPUT.format(output="run.h5"), "input")
    assert config.with_look_ahead(9, m=100.0) == config


def test_each_part_of_a_mixture_has_the_default():
    parts = 'kernel.parts=[{name="metropolis"}, {name="lm-conditional"}]'
    found = decided("kernel.name=mixture", parts)["parts"]
    assert [part.get("look_ahead") for part in found] == [None, True]


def test_a_run_stores_the_decision_and_keeps_it(tmp_path):
    """Also one that began before `look_ahead` was the default, or before there was the key."""
    path, toml = tmp_path / "run.h5", tmp_path / "run.toml"
    toml.write_text(UNSAID.format(output=path))
    given = input_file.load(toml)
    assert build.build(WORLD, given, None).config.kernel.look_ahead
    small = ["--set", "run.rounds=1", "--set", "kernel.look_ahead=false"]
    assert launch.main([str(toml), *small]) == 0
    assert launch.main([str(toml)]) == 0  # one round more
    with open_run(path) as run:
        stored = input_file.parse(run.config_toml, "stored")
        assert (run.rounds, run.geometry.n_tuned, stored.kernel.look_ahead) == (2, 0, False)
    begun = restart.Existing().as_begun(given)  # of a file without the key
    assert restart._differences(given, begun) == []
    ahead = input_file.load(toml, ["kernel.look_ahead=true"])
    words = "kernel.look_ahead is False in the file and True here"
    assert restart._differences(given, ahead) == [words]


def after_a_round(tmp_path):
    """Return the learning blocks of two after a round of burn-in, and the texts they learned."""
    text = INPUT.format(output=tmp_path / "run.h5")
    changes = ["sampler.blocks=2", "ladder.betas=[0.0, 9.6, 12.0]"]
    run, given, learn = begin(input_file.parse(text, "input", changes)), {}, Rung.learn

    def noting(rung, texts):
        given[rung.k, rung.block.number] = texts
        learn(rung, texts)

    def stopping(run, stats):
        raise StopRun("stopped here")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(StopRun):
        patch.setattr(Rung, "learn", noting)
        patch.setattr(loop, "commit", stopping)
        loop.sample(run)
    run.writer.close()
    return run.rungs[2:], given


def test_a_stop_ends_a_search(tmp_path, monkeypatch):
    """A search may take longer than the time limit leaves after a signal."""
    request, found, search = StopRequest(), [], Walkers.search

    def asked(*what):
        request.reason = "SIGUSR1"
        found.append(search(*what))
        return found[-1]

    monkeypatch.setattr(Walkers, "search", asked)
    toml, _ = write(tmp_path)
    run = begin(
        input_file.parse(toml.read_text(), "run.toml"), stopping=StopCheck(request, WORLD, None)
    )
    with pytest.raises(StopRun, match="SIGUSR1"):
        loop.sample(run)
    run.writer.close()
    assert run.next_round == -4 and not found


def test_the_blocks_of_all_rungs_share_the_search(tmp_path, monkeypatch):
    """Also those of the rung at b = 0, which learns nothing."""
    calls, search = [], Walkers.search

    def noting(walkers, generator, target):
        calls.append((target, search(walkers, generator, target)))
        return calls[-1][1]

    monkeypatch.setattr(Walkers, "search", noting)
    blocks, given = after_a_round(tmp_path)
    assert [target.ensemble.beta for target, _ in calls] == [9.6, 12.0] * 3
    budgets = [target.budget for target, _ in calls]
    assert {(b.n_batches, b.share) for b in budgets} == {(4, 2 / 3)}, "6 moves, 2 of 3 rungs"
    values = np.concatenate([b.first_values for b in budgets])
    assert sorted(values) == list(range(24)), "each first value once"
    for block in blocks:
        found = np.concatenate([texts.x for _, texts in calls[block.k - 1 :: 2]])
        learned = given[block.k, block.block.number].x
        np.testing.assert_array_equal(learned[: len(found)], found)


def tables_agree(blocks):
    tables = [block.walkers.kernel.tuned for block in blocks]
    assert all(table[2] > 0 for table in tables), "contexts"
    return all((a == b).all() for a, b in zip(tables[::2], tables[1::2], strict=True))


def test_the_blocks_of_a_rung_learn_together(tmp_path):
    blocks, given = after_a_round(tmp_path)
    assert [(block.k, block.block.number) for block in blocks] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert tables_agree(blocks)
    for block in blocks:
        known = {tuple(x) for x in given[block.k, 0].x.tolist()}
        assert known >= {tuple(x) for x in block.walkers.configurations()[0].tolist()}


def test_a_block_that_learns_alone_is_noticed(tmp_path, monkeypatch):
    learn = Rung.learn

    def alone(rung, texts):
        some = 2 * np.arange(len(texts.x)) // len(texts.x) == rung.block.number
        learn(rung, Texts(*(getattr(texts, field.name)[some] for field in fields(Texts))))

    monkeypatch.setattr(Rung, "learn", alone)
    assert not tables_agree(after_a_round(tmp_path)[0])


@pytest.mark.parametrize("stop_after", [2, 5])
def test_a_run_that_stopped_and_went_on_is_equal(whole, tmp_path, monkeypatch, stop_after):
    """Stopped in burn-in, between two learnings, and among the counted rounds."""
    toml, path = write(tmp_path)
    commit, done = loop.commit, []

    def stopping(run, stats):
        if len(done) == stop_after:
            raise StopRun("stopped here")
        done.append(run.next_round)
        return commit(run, stats)

    monkeypatch.setattr(loop, "commit", stopping)
    assert launch.main([str(toml)]) == 75
    monkeypatch.setattr(loop, "commit", commit)
    assert launch.main([str(toml)]) == 0
    run_tools.assert_same(path, whole)


@pytest.mark.slow
def test_a_decoder_learns_on_its_kv_cache(tmp_path):
    """The run itself compares its outputs with new evaluations."""
    save_decoder("gpt2", tmp_path / "model")
    toml, path = write(tmp_path)
    text = toml.read_text()
    begin, end = text.index("[model]"), text.index("[sampler]")
    model = f'[model]\nkind = "causal-lm"\npath = "{tmp_path}/model"\nlength = 9\n'
    toml.write_text(text[:begin] + model + text[end:])
    words = ["--set", "ladder.betas=[0.0, 12.0]", "--set", "run.rounds=1"]
    assert launch.main([str(toml), *words]) == 0
    with open_run(path) as run:
        stored = run.checkpoint(range(2)).rungs[-1].tuned
    assert stored[2] > 0


@pytest.mark.slow
@pytest.mark.skipif(not run_tools.LAUNCHER, reason="no MPI launcher")
@pytest.mark.parametrize(("ranks", "betas"), [
    (2, [12.0]),
    *(pytest.param(n, [0.0, 4.0, 6.0, 8.0, 9.6, 12.0], marks=pytest.mark.release) for n in (2, 4)),
])  # fmt: skip
def test_ranks_change_no_bit(tmp_path, ranks, betas):
    """On 4 ranks the two blocks of each of six rungs are on two ranks, on 2 they are on one."""
    words = ["--set", "run.rounds=1", "--set", f"ladder.betas={betas}", "--set", "sampler.blocks=2"]
    one, alone = write(tmp_path, "one")
    assert launch.main([str(one), *words]) == 0
    many, path = write(tmp_path, "many")
    done = run_tools.run(many, *words, ranks=ranks)
    assert done.returncode == 0, done.stderr
    run_tools.assert_same(path, alone)


PASSAGES = {"n_sites": 12, "n_values": 48, "n_passages": 5, "enter_bits": 12}
LOW = 1.6
"""Outputs below it are passages, or partly so."""


def deviations(tmp_path, rounds, blocks=1):
    """Run 7 rungs to b = 1.4; return whether converged, and z-scores: of bins below LOW, others."""
    toml, path = write(tmp_path)
    options = ", ".join(f"{name} = {value}" for name, value in PASSAGES.items())
    betas = [11 * b for b in (0.0, 0.5, 0.8, 1.0, 1.15, 1.28, 1.4)]
    text = toml.read_text().split("[model]")[0].replace("rounds = 2", f"rounds = {rounds}")
    text = (
        text.replace("burn_in = 4", "burn_in = 6")
        + f"""
[model]
kind = "python"
factory = "planted_passages:planted_passages"
options = {{ {options} }}
[sampler]
walkers = 40
blocks = {blocks}
steps = 2
exchanges = 4
[ladder]
betas = {betas}
[kernel]
name = "lm-conditional"
look_ahead = true
[bins]
lower = -0.01
upper = 9.99
width = 0.05
[samples]
every = 2
"""
    )
    toml.write_text(text)
    assert launch.main([str(toml)]) == 0
    with open_run(path) as run:
        density = density_of_run(run.data)
    exact_b = planted_passages("cpu", **PASSAGES).log_g(density.edges)
    use_b = (density.effective_b >= 10) & np.isfinite(density.log_g_b)
    use_b &= density.log_g_error_b > 0
    low_b = density.edges[:-1] < LOW
    some = [use_b & low_b, use_b & ~low_b]
    low, high = (((density.log_g_b - exact_b) / density.log_g_error_b)[use] for use in some)
    return density.verdict, low, high


def rms(z):
    return float(np.sqrt(np.mean(z**2)))


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, pytest.param(2, marks=pytest.mark.release)])
def test_passages_entered_once_in_4096_are_counted(tmp_path, blocks):
    """Both phases and what lies between, with errors that are right."""
    verdict, low, high = deviations(tmp_path, 28 * blocks, blocks)
    assert verdict.converged, verdict.reasons
    assert len(low) >= 8
    assert np.abs(np.concatenate([low, high])).max() < 4.0
    assert 0.5 < rms(low) < 1.7, "a few bins of one run, and they go together"
    assert 0.6 < rms(high) < 1.4


@pytest.mark.slow
def test_psi_forgotten_backward_is_noticed_in_the_density(tmp_path, monkeypatch):
    """The wrong variant of `tests/kernels/parts/test_look_ahead.py` in a whole run."""
    right = LmConditional.step

    def forgetful(self, state, ensemble, stream):
        if state.cache is not None and state.cache.lead is not None:
            calls = []
            log_q = type(self)._log_q

            def once(cache, b, span):
                calls.append(cache)
                if len(calls) == 2:  # backward
                    cache = replace(cache, lead=None, ahead=None)
                return log_q(self, cache, b, span)

            self._log_q = once
        try:
            return right(self, state, ensemble, stream)
        finally:
            self.__dict__.pop("_log_q", None)

    monkeypatch.setattr(LmConditional, "step", forgetful)
    low = deviations(tmp_path, 12)[1]
    assert np.abs(low).max() > 5.0
