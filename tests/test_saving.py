"""A model comes back from its file as it was; files that are not what was written are refused."""

from __future__ import annotations

import pickle
import shutil
import sys
import types
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import kreiss
from catalogue import TWO_WAY, VARIANTS
from kreiss.errors import InputError, MissingExtra, RunError
from kreiss.networks import RecurrentNetwork
from kreiss.storage.files import read_tensors, write_tensors
from kreiss.tasks import Copy

by_layer = pytest.mark.parametrize("name", VARIANTS)


def same(one: nn.Module, two: nn.Module) -> None:
    """Both have equal tensors, types and options."""
    assert type(one) is type(two)
    first, second = one.state_dict(), two.state_dict()
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert value.dtype == second[key].dtype
        assert torch.equal(value, second[key]), key
    fixed = [{name for name, p in model.named_parameters() if not p.requires_grad} for model in (one, two)]
    assert fixed[0] == fixed[1]
    assert one.training is two.training
    assert repr(one) == repr(two)


def returned(model: nn.Module, folder: Path) -> nn.Module:
    kreiss.save(model, folder / "model.safetensors")
    return kreiss.load(folder / "model.safetensors")


# ---------------------------------------------------------------- round trips


@by_layer
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_layer_comes_back_as_it_was(name, dtype, tmp_path):
    layer = VARIANTS[name](3, 6, 2, bidirectional=name in TWO_WAY, dropout=0.1).to(dtype)
    same(layer, returned(layer, tmp_path))


@by_layer
def test_a_layer_that_was_trained_computes_the_same_when_it_comes_back(name, tmp_path):
    layer = VARIANTS[name](3, 6)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    layer.rebase()  # the base point of a trivialization is now another
    x = torch.randn(5, 2, 3)
    assert torch.equal(layer(x)[0], returned(layer, tmp_path)(x)[0])


@by_layer
def test_a_frozen_layer_comes_back_frozen(name, tmp_path):
    frozen = VARIANTS[name](3, 6).freeze()
    back = returned(frozen, tmp_path)
    same(frozen, back)
    x = torch.randn(5, 2, 3)
    assert torch.equal(frozen(x)[0], back(x)[0])


def test_a_layer_made_from_torchs_comes_back_with_its_own_sets(tmp_path):
    layer = kreiss.NNRNN.from_torch(nn.RNN(3, 7, 2))  # as many real blocks as the matrix has real eigenvalues
    same(layer, returned(layer, tmp_path))


@by_layer
@pytest.mark.parametrize("answers", ["every", "last"])
def test_a_network_comes_back_as_it_was(name, answers, tmp_path):
    layer = VARIANTS[name](4, 6, bidirectional=name in TWO_WAY)
    network = RecurrentNetwork(layer, 5, answers=answers, symbols=9, embedding=4, dropout=0.25)
    same(network, returned(network, tmp_path))
    same(network.freeze(), returned(network.freeze(), tmp_path))


def test_parameters_that_were_fixed_come_back_fixed(tmp_path):
    network = RecurrentNetwork(kreiss.RNN(3, 4), 2)
    network.readout.weight.requires_grad_(False)
    same(network, returned(network, tmp_path))


def test_complex_tensors_come_back(tmp_path):
    tensors = {"z": torch.randn(3, 2, dtype=torch.complex64), "w": torch.randn(2, dtype=torch.complex128).conj()}
    write_tensors(tmp_path / "z", tensors, {"a": 1})
    found, content = read_tensors(tmp_path / "z")
    assert content == {"a": 1}
    assert all(torch.equal(found[key], tensors[key].resolve_conj()) for key in tensors)


def test_saving_again_replaces_the_file_and_leaves_nothing_beside_it(tmp_path):
    for size in (4, 6):
        kreiss.save(kreiss.NNRNN(3, size), tmp_path / "model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert kreiss.load(tmp_path / "model.safetensors").hidden_size == 6


# ---------------------------------------------------------------- the config of a layer


def test_a_layer_gives_back_the_arguments_it_was_made_with():
    assert kreiss.ScoRNN(3, 8, negative=2, generator=torch.Generator()).config == {
        "input_size": 3, "hidden_size": 8, "negative": 2,
    }  # fmt: skip


@by_layer
def test_copies_and_pickles_keep_the_config(name):
    import copy

    layer = VARIANTS[name](3, 4, dropout=0.0)
    assert copy.deepcopy(layer).config == layer.config
    assert pickle.loads(pickle.dumps(layer)).config == layer.config


def test_arguments_that_do_not_fit_are_still_the_constructors_error():
    with pytest.raises(TypeError, match="hidden_size"):
        kreiss.NNRNN(3)


# ---------------------------------------------------------------- the network


@pytest.mark.parametrize("name", ["nnrnn", "lstm"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_last_answer_is_read_where_each_sequence_ends(name, bidirectional):
    network = RecurrentNetwork(VARIANTS[name](3, 4, bidirectional=bidirectional), 2, answers="last")
    x, lengths = torch.randn(6, 3, 3), torch.tensor([6, 2, 4])
    whole, _ = network(x, None, lengths)
    for column, length in enumerate(lengths):
        alone, _ = network(x[:length, column : column + 1])
        torch.testing.assert_close(whole[column], alone[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["nnrnn", "lstm"])
def test_symbols_mean_their_one_hot_vectors(name):
    network = RecurrentNetwork(VARIANTS[name](5, 4), 2, symbols=5)
    symbols = torch.randint(5, (7, 3))
    given = network(nn.functional.one_hot(symbols, 5).float())[0]
    torch.testing.assert_close(network(symbols)[0], given, rtol=1e-6, atol=1e-6)


@by_layer
def test_a_state_that_is_handed_on_continues_the_sequence(name):
    network = RecurrentNetwork(VARIANTS[name](3, 4), 2).double()
    x = torch.randn(8, 2, 3, dtype=torch.float64)
    whole, _ = network(x)
    first, state = network(x[:3])
    second, _ = network(x[3:], state)
    torch.testing.assert_close(torch.cat((first, second)), whole, rtol=1e-10, atol=1e-12)


def test_a_network_refuses_a_layer_of_another_size_or_order():
    with pytest.raises(InputError, match=r"`layer` must take inputs of size 4.*got input_size=3"):
        RecurrentNetwork(kreiss.RNN(3, 4), 2, symbols=9, embedding=4)
    with pytest.raises(InputError, match="time first; got batch_first=True"):
        RecurrentNetwork(kreiss.RNN(3, 4, batch_first=True), 2)


# ---------------------------------------------------------------- files that are refused


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    kreiss.save(kreiss.NNRNN(3, 4), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


class Malicious:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (Path.touch, (Path("unpickled"),))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_under_the_name_of_a_model_is_refused_and_does_not_run(protocol, saved, monkeypatch):
    monkeypatch.chdir(saved.parent)
    saved.write_bytes(pickle.dumps(Malicious(), protocol=protocol))
    with pytest.raises(RunError, match=r"must be a .*file written by kreiss; got"):
        kreiss.load(saved)
    assert not Path("unpickled").exists()


def test_a_file_of_torch_save_is_refused_and_does_not_run(saved, monkeypatch):
    monkeypatch.chdir(saved.parent)
    torch.save({"model": Malicious()}, saved)
    with pytest.raises(RunError, match="Python pickle or an archive of one"):
        kreiss.load(saved)
    assert not Path("unpickled").exists()


def test_every_single_bit_that_flips_is_seen(saved):
    whole = saved.read_bytes()
    for position in range(0, len(whole), 7):  # header, checksum and tensors
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        saved.write_bytes(changed)
        with pytest.raises(RunError, match=r"model.safetensors` must be a"):
            kreiss.load(saved)


def test_a_file_cut_short_anywhere_is_refused(saved):
    whole = saved.read_bytes()
    for length in (0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:length])
        with pytest.raises(RunError, match=r"model.safetensors` must be a .*got"):
            kreiss.load(saved)


def test_a_safetensors_file_of_somebody_else_is_refused(saved):
    safetensors.torch.save_file({"weight": torch.zeros(2)}, saved)
    with pytest.raises(RunError, match="not written by kreiss"):
        kreiss.load(saved)
    safetensors.torch.save_file({"weight": torch.zeros(2)}, saved, {"checksum": "0"})
    with pytest.raises(RunError, match="not written by kreiss"):
        kreiss.load(saved)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing.safetensors` must be a readable file; got No such file"):
        kreiss.load(tmp_path / "nothing.safetensors")
    with pytest.raises(InputError, match=r"must hold best.safetensors or last.safetensors; got neither"):
        kreiss.load(tmp_path)


def test_a_file_of_a_newer_format_or_without_a_model_is_refused(saved):
    tensors, content = read_tensors(saved)
    write_tensors(saved, tensors, {**content, "format": 99})
    with pytest.raises(InputError, match=r"format 1 or older; got format 99.*Update kreiss"):
        kreiss.load(saved)
    write_tensors(saved, tensors, {"format": 1})
    with pytest.raises(InputError, match="must hold a model"):
        kreiss.load(saved)


def test_a_module_of_somebody_else_is_not_saved_and_the_message_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"must be a layer of kreiss.*got Linear\. Save its state_dict"):
        kreiss.save(nn.Linear(2, 2), tmp_path / "linear")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(RunError, match=r"could not be written: No such file or directory"):
        kreiss.save(kreiss.RNN(2, 2), tmp_path / "no" / "model.safetensors")


# ---------------------------------------------------------------- the hub


def test_without_the_hub_package_the_message_is_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"pip install 'kreiss\[hub\]'"):
        kreiss.save(kreiss.RNN(2, 2), "hf://somebody/model")


@pytest.fixture
def remote(monkeypatch, tmp_path) -> Path:
    """A folder in place of the Hub; huggingface_hub's own mixin does the rest."""
    folder = tmp_path / "remote"

    class Api:
        def __init__(self, token=None) -> None:
            pass

        def create_repo(self, repo_id, private, exist_ok):
            return types.SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, repo_id, folder_path, **_) -> str:
            shutil.copytree(folder_path, folder / repo_id)
            return f"https://somewhere/{repo_id}"

    download = lambda repo_id, filename, **_: str(folder / repo_id / filename)  # noqa: E731
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Api)
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", download)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    return folder


def test_a_model_goes_to_the_hub_and_comes_back(remote):
    layer = kreiss.NNRNN(3, 4)
    kreiss.save(layer, "hf://somebody/model")
    same(layer, kreiss.load("hf://somebody/model"))
    same(layer, kreiss.from_pretrained("somebody/model"))
    assert "A NNRNN with 4 hidden units and" in (remote / "somebody/model/README.md").read_text()
    with pytest.raises(InputError, match="of the form hf://user/name"):
        kreiss.load("hf://model")


def test_the_card_of_a_run_says_how_it_was_trained_and_what_it_reached(remote, tmp_path):
    settings = {"hidden": 6, "steps": 4, "task.delay": 3}
    run = kreiss.fit("nnrnn", "copy", settings, out=tmp_path / "RUN", show="quiet")
    assert kreiss.push_to_hub(tmp_path / "RUN", "somebody/run") == "https://somewhere/somebody/run"
    card = (remote / "somebody/run/README.md").read_text()
    without = Copy(3).baseline()["loss"]
    assert f"| loss | {run.metrics['loss']:.4g} | {without:.4g} |" in card
    assert "kreiss train copy --model nnrnn --task.delay 3 --hidden 6 --steps 4" in card
    assert 'kreiss.from_pretrained("somebody/run")' in card
    assert card.startswith("---\nlibrary_name: kreiss\n")
    same(kreiss.load(tmp_path / "RUN"), kreiss.from_pretrained("somebody/run"))
