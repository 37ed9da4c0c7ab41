"""Images by the pixel and texts by the character: counts, permutations, chunk edges, baselines."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import kreiss
from kreiss import InputError
from kreiss.tasks import Characters, Pixels
from kreiss.tasks.characters import mikolov, streams
from kreiss.tasks.losses import NO_TARGET
from small_tasks import DATA, real, same

# ---------------------------------------------------------------- pixels


def test_the_embedded_digits_are_those_of_scikit_learn():
    task = Pixels()
    assert task.pixels.shape == (1797, 64)
    assert task.pixels.max() == 16
    assert np.bincount(task.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert [len(task.splits[part]) for part in ("train", "valid", "test")] == [1437, 180, 180]
    batch = task.train(0, 50, 0)
    assert (batch.inputs.min(), batch.inputs.max()) == (0, 1)


def test_a_permutation_is_named_by_its_seed():
    plain, one, two, other = Pixels(), Pixels(permutation=100), Pixels(permutation=100), Pixels(permutation=101)
    assert np.array_equal(one.pixels, two.pixels)
    assert not np.array_equal(one.pixels, other.pixels)
    order = np.random.RandomState(100).permutation(64)
    assert np.array_equal(one.pixels, plain.pixels[:, order])
    assert np.random.RandomState(100).permutation(784)[:5].tolist() == [73, 529, 19, 222, 770]


@real("mnist")
def test_mnist_has_the_counts_that_are_published():
    task = Pixels("mnist")
    assert [len(task.splits[part]) for part in ("train", "valid", "test")] == [50_000, 10_000, 10_000]
    assert task.pixels.shape == (70_000, 784)
    counts = np.bincount(task.labels[:60_000]).tolist()
    assert counts == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert task.baseline()["accuracy"] == 0.1135  # the last pixel is always black: ones are the most frequent
    batch = task.train(0, 100, 0)
    assert batch.inputs.shape == (784, 100, 1)
    assert batch.inputs.max() == 1


@real("mnist")
def test_mnist_given_by_its_folder_is_the_same():
    assert same(Pixels(DATA / "mnist").train(3, 5, 0), Pixels("mnist").train(3, 5, 0))


def idx_file(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


@pytest.fixture
def fashion(tmp_path: Path) -> Path:
    """A folder as Fashion-MNIST's, of 12 + 6 images."""
    source = np.random.RandomState(0)
    for part, count in (("train", 12), ("t10k", 6)):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx_file(source.randint(256, size=(count, 3, 4))))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx_file(np.arange(count) % 10))
    return tmp_path


def test_any_folder_of_idx_files_is_read_by_its_path(fashion):
    task = Pixels(fashion)
    assert task.pixels.shape == (18, 12)
    assert [len(task.splits[part]) for part in ("train", "valid", "test")] == [10, 2, 6]
    assert next(task.held_out("test", 6)).targets.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "spoil", [lambda raw: raw[:-1], lambda raw: b"\0\0\x09" + raw[3:], lambda raw: b"", lambda raw: raw[:6]]
)
def test_a_file_that_is_not_idx_is_named(fashion, spoil):
    path = fashion / "t10k-images-idx3-ubyte"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(
        InputError, match=r"^t10k-images-idx3-ubyte must be an IDX file of unsigned bytes; got \d+ bytes"
    ):
        Pixels(fashion)


def test_images_and_labels_must_be_as_many(fashion):
    (fashion / "t10k-labels-idx1-ubyte").write_bytes(idx_file(np.zeros(5)))
    with pytest.raises(InputError, match=r"^images must have a label each, below 10; got 6 images and 5 labels"):
        Pixels(fashion)


def test_unknown_images_are_refused():
    with pytest.raises(InputError, match=r"^unknown images 'mnst'\. Did you mean 'mnist'\?"):
        Pixels("mnst")


# ---------------------------------------------------------------- characters


@given(length=st.integers(2, 200), count=st.integers(1, 40))
def test_streams_hold_every_pair_of_neighbours_exactly_once_and_in_order(length, count):
    symbols = (np.arange(length) % 251).astype(np.uint8)
    inputs, targets = streams(symbols, count)
    assert inputs.shape == targets.shape == (-(-(length - 1) // min(count, length - 1)), min(count, length - 1))
    there = (targets != NO_TARGET).T
    assert inputs.T[there].tolist() == symbols[:-1].tolist()
    assert targets.T[there].tolist() == symbols[1:].tolist()
    assert there[:, :-1].all()  # only a last step may be padding


def test_the_state_is_carried_from_chunk_to_chunk_and_never_over_the_edge_of_an_epoch():
    task = Characters(chunk=1000)
    per_epoch = task.updates_per_epoch(8)
    assert per_epoch == math.ceil(math.ceil((842_224 - 1) / 8) / 1000)
    edges = [task.train(update, 8, 0) for update in (0, 1, per_epoch - 1, per_epoch, per_epoch + 1)]
    assert [batch.carries for batch in edges] == [False, True, True, False, True]
    assert same(edges[0], edges[3])
    assert len(edges[2].inputs) == math.ceil((842_224 - 1) / 8) % 1000
    # what a chunk ends with is what the next one begins with
    assert torch.equal(edges[0].targets[-1], edges[1].inputs[0])


def test_every_held_out_character_but_the_first_is_predicted_once_at_any_batch_size_and_chunk():
    expected = Characters().parts["valid"]
    for chunk, batch, count in ((1000, 100, 10), (333, 3, 10), (50_000, 1, 1), (7000, 2, 7)):
        task = Characters(chunk=chunk, streams=count)
        columns: list[list[Tensor]] = []
        for piece in task.held_out("valid", batch):
            if not piece.carries:
                columns += [[] for _ in range(piece.inputs.shape[1])]
            for column, targets in zip(columns[-piece.inputs.shape[1] :], piece.targets.T, strict=True):
                column.append(targets[targets != NO_TARGET])
        assert len(columns) == count
        assert torch.cat([torch.cat(column) for column in columns]).tolist() == expected[1:].tolist()


class Small(nn.Module):
    """A recurrent network on symbols, as a run would build it."""

    def __init__(self, symbols: int, hidden: int = 8) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.layer = kreiss.RNN(symbols, hidden, nonlinearity="tanh", generator=generator)
        self.readout = nn.Linear(hidden, symbols)

    def forward(self, inputs: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        hidden, state = self.layer(
            nn.functional.one_hot(inputs, self.layer.input_size).to(torch.get_default_dtype()), state
        )
        return self.readout(hidden), state


@torch.no_grad()
def bits(model: Small, task: Characters, split: str, batch: int) -> float:
    totals, state = (0.0, 0.0), None
    for piece in task.held_out(split, batch):
        output, state = model(piece.inputs, state if piece.carries else None)
        found = task.totals(output, piece)["bpc"]
        totals = (totals[0] + found[0], totals[1] + found[1])
    return totals[0] / totals[1]


def test_bits_per_character_depend_neither_on_the_chunk_nor_on_the_batch_size():
    model = Small(76)
    expected = bits(model, Characters(chunk=10_000), "valid", 10)
    assert 3 < expected < 12
    for chunk, batch in ((150, 10), (37, 4), (1000, 1), (10_000, 128)):
        assert bits(model, Characters(chunk=chunk), "valid", batch) == pytest.approx(expected, abs=1e-6)


@torch.no_grad()
def test_two_chunks_end_in_the_state_of_one_long_chunk():
    model, half, whole = Small(76), Characters(chunk=60), Characters(chunk=120)
    first, second = half.train(0, 5, 0), half.train(1, 5, 0)
    _, state = model(first.inputs, None)
    _, state = model(second.inputs, state if second.carries else None)
    torch.testing.assert_close(state, model(whole.train(0, 5, 0).inputs, None)[1], rtol=0, atol=1e-6)


def test_the_embedded_text_is_seven_plays():
    task = Characters()
    text = b"".join(bytes(task.alphabet[i] for i in task.parts[part]) for part in ("train", "valid", "test"))
    assert text.startswith(b"ALL'S WELL THAT ENDS WELL\n\nby William Shakespeare")
    assert text.count(b"by William Shakespeare") == 7
    assert text.endswith(b"peal of\nordnance is shot off.]\n")
    assert task.input_size == task.output_size == len(set(text)) == 76


@pytest.mark.parametrize("form", [str, Path])
def test_any_text_file_is_read_by_its_path(tmp_path, form):
    (tmp_path / "mine.txt").write_bytes("häh hah\n hmm \n".encode() * 20)
    task = Characters(form(tmp_path / "mine.txt"), chunk=10, valid=0.2, test=0.1)
    assert [len(task.parts[part]) for part in ("train", "valid", "test")] == [210, 60, 30]
    assert set(task.alphabet) == set("häh hah\n hmm \n".encode())
    stripped = Characters(form(tmp_path / "mine.txt"), characters="mikolov")
    assert set(stripped.alphabet) == set("häh_hah\nhmm".encode())


def test_the_baseline_of_characters_is_the_table_of_pairs(tmp_path):
    (tmp_path / "ab").write_bytes(b"ab" * 500)
    found = Characters(tmp_path / "ab").baseline()
    train = 900
    expected = [-math.log2((n + 1) / (n + 2)) for n in (train // 2, train // 2 - 1)]  # after a, after b
    assert found["bpc"] == pytest.approx((25 * expected[0] + 24 * expected[1]) / 49, rel=1e-9)
    assert found["loss"] == pytest.approx(found["bpc"] * math.log(2))


def test_texts_that_cannot_be_shared_out_are_refused(tmp_path):
    (tmp_path / "short").write_bytes(b"abcdef")
    with pytest.raises(
        InputError, match=r"^a text needs two characters in each of train, valid and test; got 6 in all"
    ):
        Characters(tmp_path / "short")
    with pytest.raises(InputError, match=r"^`valid` and `test` must be positive shares.*; got valid=0.6, test=0.4"):
        Characters(valid=0.6, test=0.4)
    with pytest.raises(InputError, match=r"^a data file must exist; got shakespear, which does not"):
        Characters("shakespear")


@real("ptb")
@pytest.mark.parametrize(
    ("characters", "counts"), [("mikolov", (5_017_482, 393_042, 442_423)), ("bytes", (5_101_618, 399_782, 449_945))]
)
def test_ptb_has_the_symbols_of_either_set(characters, counts):
    task = Characters("ptb", characters=characters)
    assert tuple(len(task.parts[part]) for part in ("train", "valid", "test")) == counts
    assert task.input_size == 50
    assert all(len(np.unique(task.parts[part])) <= 50 for part in task.parts)
    assert len(np.unique(task.parts["train"])) == 50


@real("ptb")
def test_mikolovs_character_files_are_reproduced_byte_for_byte():
    published = {
        "train": "e313d91425e06c4f0a8fb6e881dcce0c291f2a0e9f4dda54833069b122f91da9",
        "valid": "21661f63ec355085879458b6524644d4add5573541b4be14fb52ab2e2e995eb8",
        "test": "1ef5607ac3c463b16e38bfe7900dd3bfc91de5a96e0f21e7eab5188b465b8ebe",
    }
    for part, expected in published.items():
        lines = mikolov((DATA / "ptb" / f"ptb.{part}.txt").read_bytes()).decode().splitlines()
        text = "".join(" ".join(line) + " \n " for line in lines)
        assert hashlib.sha256(text.encode()).hexdigest() == expected


@real("ptb")
def test_bits_per_character_on_ptb_depend_neither_on_the_chunk_nor_on_the_batch_size():
    model = Small(50, hidden=4)
    found = [bits(model, Characters("ptb", chunk=chunk), "valid", batch) for chunk, batch in ((20_000, 10), (3000, 5))]
    assert found[0] == pytest.approx(found[1], abs=1e-6)
