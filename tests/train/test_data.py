"""Is a batch a pure function of (seed, step), does an epoch visit each window once, is damage seen?"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etastar.errors import InputError
from etastar.train.corpus_order import shuffled
from etastar.train.corpus_shards import Manifest, Shard, TokenStream, read_manifest, verify
from etastar.train.data import Corpus, SyntheticCorpus


def write_corpus(
    folder: Path, train: np.ndarray, validation: np.ndarray, *, vocab: int, cuts: tuple[int, ...] = ()
) -> Path:
    """A corpus folder made by hand, with the training tokens cut into shards at `cuts`."""
    dtype = "uint16" if vocab <= 1 << 16 else "uint32"
    folder.mkdir()

    def shard(name: str, tokens: np.ndarray) -> Shard:
        raw = tokens.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
        (folder / name).write_bytes(raw)
        return Shard(file=name, tokens=len(tokens), sha256=hashlib.sha256(raw).hexdigest())

    manifest = Manifest(
        dtype=dtype,
        vocab=vocab,
        document_start=0,
        train=tuple(shard(f"train-{i}.u", part) for i, part in enumerate(np.split(train, cuts))),
        validation=(shard("validation-0.u", validation),),
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return folder


def counting_corpus(tokens: int) -> Corpus:
    """Token i of the corpus is i: a window says where it came from."""
    stream = TokenStream([np.arange(tokens, dtype=np.uint32)], ["counting"])
    return Corpus(vocab=tokens, identity="counting", train=stream, held_out=stream, name="counting")


@settings(deadline=None)
@given(count=st.integers(1, 2000), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 10**6))
def test_order_is_a_permutation(count: int, seed: int, epoch: int) -> None:
    order = shuffled(np.arange(count), count=count, seed=seed, epoch=epoch)
    np.testing.assert_array_equal(np.sort(order), np.arange(count))


@given(count=st.integers(2**33, 2**62), seed=st.integers(0, 9), data=st.data())
@settings(max_examples=50, deadline=None)
def test_order_of_a_huge_corpus_is_injective_and_in_range(count: int, seed: int, data: st.DataObject) -> None:
    positions = np.unique(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=64)))
    order = shuffled(positions.astype(np.int64), count=count, seed=seed, epoch=0)
    assert order.min() >= 0
    assert order.max() < count
    assert len(np.unique(order)) == len(positions)


def test_order_does_not_change_between_versions() -> None:
    """Runs in progress, and results compared across versions, hang on it."""
    assert shuffled(np.arange(10), count=10, seed=1, epoch=0).tolist() == [6, 3, 5, 7, 0, 1, 4, 8, 2, 9]


def test_order_looks_random() -> None:
    """Neighbours go apart: rank correlations stay within 4 standard errors, cells fill evenly (χ²)."""
    count = 40_000
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        order = shuffled(np.arange(count), count=count, seed=seed, epoch=epoch)
        for lag in (0, 1, 2, 200):
            first, second = (np.arange(count), order) if lag == 0 else (order[:-lag], order[lag:])
            assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(count)
        cells = np.histogram2d(np.arange(count), order, bins=20)[0]
        expected = count / 400
        assert 260 < ((cells - expected) ** 2 / expected).sum() < 480  # 361 degrees of freedom


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(20, 150),
    length=st.integers(1, 9),
    sequences=st.integers(1, 50),
    seed=st.integers(0, 2**32),
)
def test_each_epoch_visits_each_window_once(tokens: int, length: int, sequences: int, seed: int) -> None:
    corpus = counting_corpus(tokens)
    count = corpus.windows(length=length)
    steps = -(-3 * count // sequences)
    rows = np.concatenate([corpus.batch(seed=seed, step=s, sequences=sequences, length=length) for s in range(steps)])
    np.testing.assert_array_equal(rows, rows[:, :1] + np.arange(length + 1))
    for epoch in range(3):
        visited = rows[epoch * count : (epoch + 1) * count, 0]
        np.testing.assert_array_equal(np.sort(visited), np.arange(count) * length)
    for step in (0, steps // 2, steps - 1):
        last = step * sequences + sequences - 1
        assert corpus.epoch(step=step, sequences=sequences, length=length) == last // count


def test_epochs_and_seeds_are_shuffled_anew() -> None:
    corpus = counting_corpus(1001)
    orders = [
        corpus.batch(seed=seed, step=step, sequences=100, length=10)[:, 0].tolist()
        for seed in (0, 1)
        for step in (0, 1)
    ]
    assert len({tuple(order) for order in orders}) == 4
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


def test_every_target_is_seen_once_an_epoch() -> None:
    corpus = counting_corpus(101)
    rows = corpus.batch(seed=3, step=0, sequences=10, length=10)
    assert sorted(rows[:, 1:].ravel().tolist()) == list(range(1, 101))


@given(cuts=st.lists(st.integers(1, 299), max_size=6, unique=True), step=st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_sharding_does_not_change_a_batch(tmp_path_factory: pytest.TempPathFactory, cuts: list[int], step: int) -> None:
    tokens = np.random.default_rng(0).integers(0, 70_000, 300)
    folder = tmp_path_factory.mktemp("corpus") / "corpus"
    opened = Corpus.open(write_corpus(folder, tokens, tokens, vocab=70_000, cuts=tuple(sorted(cuts))))
    whole = TokenStream([tokens], ["whole"])
    reference = Corpus(vocab=70_000, identity="", train=whole, held_out=whole, name="whole")
    batch = opened.batch(seed=5, step=step, sequences=4, length=16)
    assert batch.dtype == np.int64
    assert batch.shape == (4, 17)
    np.testing.assert_array_equal(batch, reference.batch(seed=5, step=step, sequences=4, length=16))


def test_batch_does_not_depend_on_what_was_asked_before() -> None:
    first, second = (SyntheticCorpus(vocab=64, seed=2, tokens=5000) for _ in range(2))
    forwards = [first.batch(seed=1, step=s, sequences=3, length=20) for s in range(30)]
    backwards = [second.batch(seed=1, step=s, sequences=3, length=20) for s in reversed(range(30))]
    np.testing.assert_array_equal(forwards, backwards[::-1])


def test_validation_is_fixed_spread_and_bounded(tmp_path: Path) -> None:
    held_out = np.arange(1000, 2001)
    corpus = Corpus.open(write_corpus(tmp_path / "c", np.arange(1000), held_out, vocab=2001))
    rows = corpus.validation(sequences=5, length=50)
    np.testing.assert_array_equal(rows, corpus.validation(sequences=5, length=50))
    assert rows[:, 0].tolist() == [1000, 1200, 1400, 1600, 1800]
    assert rows.min() >= 1000
    assert corpus.validation(sequences=20, length=50).shape == (20, 51)
    with pytest.raises(InputError, match="1001 validation tokens, 21 sequences of 50 need 1051") as caught:
        corpus.validation(sequences=21, length=50)
    assert "at most 1000 tokens" in caught.value.hint


def test_too_short_a_corpus_is_refused(tmp_path: Path) -> None:
    corpus = Corpus.open(write_corpus(tmp_path / "c", np.arange(16), np.arange(16), vocab=16))
    assert corpus.batch(seed=0, step=0, sequences=2, length=15).shape == (2, 16)
    with pytest.raises(InputError, match="16 training tokens, one window needs 17"):
        corpus.batch(seed=0, step=0, sequences=2, length=16)


@pytest.mark.parametrize("bad", [{"sequences": 0}, {"length": 0}, {"step": -1}])
def test_impossible_batches_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        counting_corpus(100).batch(**{"seed": 0, "step": 0, "sequences": 1, "length": 4, **bad})


def damaged(folder: Path, damage: str) -> None:
    shard = folder / "train-1.u"
    if damage == "missing":
        shard.unlink()
    elif damage == "truncated":
        shard.write_bytes(shard.read_bytes()[:-2])
    elif damage == "longer":
        shard.write_bytes(shard.read_bytes() + b"\0\0")
    else:
        raw = bytearray(shard.read_bytes())
        raw[10] ^= 1
        shard.write_bytes(raw)


@pytest.mark.parametrize("damage", ["missing", "truncated", "longer"])
def test_a_shard_of_the_wrong_size_is_named_at_opening(tmp_path: Path, damage: str) -> None:
    folder = write_corpus(tmp_path / "c", np.arange(1000), np.arange(100), vocab=1000, cuts=(300, 600))
    damaged(folder, damage)
    with pytest.raises(InputError, match=r"train-1\.u ") as caught:
        Corpus.open(folder)
    assert "train-0" not in caught.value.message


def test_a_flipped_bit_is_found_by_verify(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "c", np.arange(1000), np.arange(100), vocab=1001, cuts=(300, 600))
    verify(folder, read_manifest(folder))
    damaged(folder, "flipped")
    Corpus.open(folder)
    with pytest.raises(InputError, match=r"train-1\.u has changed"):
        verify(folder, read_manifest(folder))


def test_a_token_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    tokens = np.arange(1000)
    folder = write_corpus(tmp_path / "c", tokens, tokens[:100], vocab=900, cuts=(300, 600))
    corpus = Corpus.open(folder)
    with pytest.raises(InputError, match=r"train-2\.u holds token 9\d\d, vocabulary is 900"):
        corpus.batch(seed=0, step=0, sequences=99, length=10)
    with pytest.raises(InputError, match=r"train-2\.u holds token 999, vocabulary is 900"):
        verify(folder, read_manifest(folder))


def test_folders_that_are_no_corpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        Corpus.open(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no manifest\.json"):
        Corpus.open(tmp_path)
    (tmp_path / "unfinished.json").write_text("{}")
    with pytest.raises(InputError, match="unfinished corpus"):
        Corpus.open(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "etastar corpus 1", "dtype": "float"}')
    with pytest.raises(InputError, match="dtype"):
        Corpus.open(tmp_path)


def test_a_manifest_cannot_name_files_outside_its_folder() -> None:
    with pytest.raises(ValueError, match="pattern"):
        Shard(file="../secret", tokens=1, sha256="0" * 64)


def test_identity_is_of_content(tmp_path: Path) -> None:
    tokens, other = np.arange(100), np.arange(100)
    other[50] = 0
    a, b, c, d = (
        Corpus.open(write_corpus(tmp_path / name, train, tokens, vocab=vocab)).identity
        for name, train, vocab in (
            ("a", tokens, 100),
            ("b", tokens, 100),
            ("c", other, 100),
            ("d", tokens, 128),
        )
    )
    assert a == b
    assert len({a, c, d}) == 3


def conditional_entropy(context: np.ndarray, token: np.ndarray, vocab: int) -> float:
    """Plug-in H(token | context) in nats."""
    joint = np.unique(context.astype(np.int64) * vocab + token, return_counts=True)[1] / len(token)
    marginal = np.unique(context, return_counts=True)[1] / len(token)
    return float(-(joint * np.log(joint)).sum() + (marginal * np.log(marginal)).sum())


def test_synthetic_language_has_layers_to_learn() -> None:
    """Frequencies, pairs and triples each lower the loss, down to the language's own entropy."""
    vocab = 32
    corpus = SyntheticCorpus(vocab=vocab, seed=4, tokens=400_000)
    stream = corpus.batch(seed=0, step=0, sequences=1, length=399_999)[0]
    before, last, token = stream[:-2], stream[1:-1], stream[2:]
    inside = (last != 0) & (token != 0)
    before, last, token = before[inside], last[inside], token[inside]
    unigram = conditional_entropy(np.zeros_like(token), token, vocab)
    bigram = conditional_entropy(last, token, vocab)
    trigram = conditional_entropy(last * vocab + before, token, vocab)
    assert np.log(vocab) - 0.2 > unigram
    assert unigram - 0.2 > bigram
    assert bigram - 0.1 > trigram
    assert trigram == pytest.approx(corpus.entropy, abs=0.02)


def test_synthetic_corpus_is_its_parameters() -> None:
    same, again, other = (SyntheticCorpus(vocab=128, seed=seed, tokens=12_345) for seed in (0, 0, 1))
    assert (same.vocab, same.tokens) == (128, 12_345)
    assert same.identity == again.identity != other.identity
    np.testing.assert_array_equal(same.validation(sequences=2, length=9), again.validation(sequences=2, length=9))
    with pytest.raises(InputError, match="vocab 3"):
        SyntheticCorpus(vocab=3)


def test_the_training_path_starts_on_a_bare_image() -> None:
    """numpy and pydantic are all that data and preparation import."""
    heavy = ["torch", "polars", "scipy", "pyarrow", "tokenizers", "datasets", "rich", "typer"]
    code = f"import sys, etastar.train.corpus_default; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
