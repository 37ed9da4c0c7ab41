"""Speech by the frame: sounds are read, predicted, resynthesised and judged."""

from __future__ import annotations

import dataclasses
import math
import re
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import kreiss
from kreiss import InputError
from kreiss.preprocessing.sound import read_sound, resampled, spectrum
from kreiss.tasks import Batch, Frames
from kreiss.tasks.sources.corpora import CORE_TEST, VALIDATION, timit
from kreiss.tasks.sources.sound import quality, resynthesised, segmental_snr
from small_tasks import DATA, SMALL, answers, metrics, real
from sounds import chunk, riff, speech, sphere

# ---------------------------------------------------------------- frames


def test_the_loss_of_frames_ignores_whatever_is_answered_in_padding(files):
    task = SMALL["frames"](files)
    batch = next(task.held_out("test", 10))
    assert len(set(batch.lengths.tolist())) > 1
    output = answers(task, batch)
    spoiled = output.clone()
    for place, length in enumerate(batch.lengths):
        spoiled[length:, place] = math.inf
    assert task.loss(spoiled, batch) == task.loss(output, batch)
    assert task.totals(spoiled, batch) == task.totals(output, batch)
    spoiled.requires_grad_()
    task.loss(spoiled, batch).backward()
    assert torch.isfinite(spoiled.grad).all()
    expected = [
        (output[:length, place] - batch.targets[:length, place]).square().flatten()
        for place, length in enumerate(batch.lengths)
    ]
    torch.testing.assert_close(task.loss(output, batch), torch.cat(expected).mean())


def test_a_frame_is_answered_by_the_next(files):
    task = SMALL["frames"](files)
    batch = task.train(0, 3, 0)
    length = int(batch.lengths[0])
    assert torch.equal(batch.inputs[1:length, 0], batch.targets[: length - 1, 0])
    frames = task.log_magnitudes(batch.members[0])
    np.testing.assert_array_equal(batch.targets[:length, 0].numpy(), frames[1:])
    assert frames.min() >= math.log(1e-4) - 1e-6


def test_the_recordings_are_shared_out_by_their_index(files):
    task = SMALL["frames"](files)
    shared = {part: {int(task.files[m].stem.split("_")[-1]) for m in members} for part, members in task.splits.items()}
    assert shared == {"test": {0, 1, 2, 3, 4}, "valid": {5, 6, 7, 8, 9}, "train": {10, 11, 30}}


def test_quality_needs_to_know_the_utterances(files):
    task = Frames("fsdd", path=files / "fsdd", window=32, hop=16, quality=True)
    batch = next(task.held_out("test", 2))
    plain = Batch(batch.inputs, batch.targets, batch.lengths)
    with pytest.raises(InputError, match=r"^`quality` needs batches as `held_out` gives them; got a plain Batch"):
        task.totals(plain.targets, plain)
    assert "segsnr" in task.totals(batch.targets, dataclasses.replace(batch, inputs=batch.inputs.double()))
    piece = next(task.held_out("valid", 2))
    assert set(task.totals(piece.targets, piece)) == {"loss"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": 32, "hop": 17}, "`window` must be even and `hop` at most its half; got window=32, hop=17"),
        ({"window": 31, "hop": 8}, "`window` must be even"),
        ({"floor": 0.0}, r"`floor` must be positive; got floor=0.0"),
        ({"sounds": "fssd"}, "unknown sounds 'fssd'. Did you mean 'fsdd'"),
        ({"path": "/nowhere"}, "`path` must be a folder; got /nowhere, which is none"),
    ],
)
def test_options_of_frames_that_cannot_be_are_refused(options, said):
    with pytest.raises(InputError, match=f"^{re.escape(said)}" if "\\" not in said else said):
        Frames(**options)


def test_a_folder_without_the_corpus_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"must hold sounds named .* got 0 to train, 0 to valid, 0 to test"):
        Frames("fsdd", path=tmp_path)
    with pytest.raises(InputError, match=r"got 0 sounds of 0 speakers"):
        Frames("timit", path=tmp_path)


def test_timit_without_a_folder_says_that_it_is_licensed(monkeypatch, tmp_path):
    monkeypatch.setenv("KREISS_DATA", str(tmp_path))
    monkeypatch.setenv("KREISS_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=r"^TIMIT is licensed and must be given by its folder"):
        Frames("timit")


@pytest.mark.parametrize("case", [str.upper, str.lower])
@pytest.mark.parametrize("write", [riff, sphere])
def test_timit_is_shared_out_as_is_customary(tmp_path, case, write):
    speakers = {"TRAIN": ["fcjf0", "mwar0"], "TEST": [*CORE_TEST.split(), *VALIDATION.split(), "other0"]}
    for part, names in speakers.items():
        for name in names:
            folder = tmp_path / case(part) / case("dr1") / case(name)
            folder.mkdir(parents=True)
            for sentence in ("sa1", "sx9", "si8"):
                (folder / case(f"{sentence}.wav")).write_bytes(write(speech(400), 16_000))
    found = timit(tmp_path)
    assert {part: len(paths) for part, paths in found.items()} == {"train": 4, "valid": 100, "test": 48}
    task = Frames("timit", path=tmp_path, window=32, hop=16)
    assert len(task.wave(0)) == 200  # at 8 kHz


@real("timit_sample")
def test_the_timit_sample_goes_through_end_to_end():
    task = Frames("timit", path=DATA / "timit_sample", quality=True)
    assert {part: len(members) for part, members in task.splits.items()} == {"train": 96, "valid": 16, "test": 16}
    batch = task.train(0, 28, 0)
    assert batch.inputs.shape[1:] == (28, 129)
    judged = task.totals(batch.targets, batch)
    assert set(judged) == {"loss"}
    assert metrics(task, "valid", 16)["loss"] > task.baseline()["loss"]
    piece = next(task.held_out("test", 2))
    undistorted = task.metrics(task.totals(piece.targets, piece))
    assert undistorted["loss"] == 0
    assert undistorted["stoi"] == pytest.approx(1, abs=1e-6)  # the maxima of the measures
    assert undistorted["pesq"] == pytest.approx(4.5486, abs=1e-3)
    assert undistorted["segsnr"] == pytest.approx(35, abs=0.1)
    noisy = task.metrics(task.totals(piece.targets + torch.randn(piece.targets.shape), piece))
    assert noisy["segsnr"] < 10
    assert noisy["stoi"] < 0.97
    assert noisy["pesq"] < 3.5


@real("fsdd")
def test_free_spoken_digits_have_their_published_test_set():
    task = Frames()
    assert {part: len(members) for part, members in task.splits.items()} == {"train": 2400, "valid": 300, "test": 300}
    assert task.train(0, 28, 0).inputs.shape[1:] == (28, 129)


# ---------------------------------------------------------------- sound


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
@pytest.mark.parametrize("channels", [1, 2])
def test_riff_files_are_read_to_the_precision_they_have(tmp_path, bits, channels):
    wave = speech(301)
    note = chunk(b"LIST", b"odd")  # chunks of odd length are padded
    (tmp_path / "a.wav").write_bytes(riff(wave, 11_025, bits, channels, extra=note))
    rate, found = read_sound(tmp_path / "a.wav")
    assert rate == 11_025
    np.testing.assert_allclose(found, wave, rtol=0, atol=0.5**bits + 1e-12)


@pytest.mark.parametrize("order", ["01", "10"])
def test_sphere_files_are_read_in_either_byte_order(tmp_path, order):
    wave = speech(300)
    (tmp_path / "a.wav").write_bytes(sphere(wave, 16_000, order))
    rate, found = read_sound(tmp_path / "a.wav")
    assert rate == 16_000
    np.testing.assert_allclose(found, wave, rtol=0, atol=0.5**16 + 1e-12)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"ID3 and so on",
            r"must be a RIFF \(WAV\), FLAC, Ogg, AIFF or NIST SPHERE file; got one that starts b'ID3 and '",
        ),
        (b"", "must be a RIFF"),
        (riff(speech(9))[:30], "must hold plain PCM .* got no fmt or data chunk"),
        (riff(speech(9)).replace(b"fmt \x10\0\0\0\x01", b"fmt \x10\0\0\0\x06"), "got coding 6, 16 bits"),
        (sphere(speech(9), coding="pcm,embedded-shorten-v2.00"), "got coding pcm,embedded-shorten-v2.00, 16 bits"),
        (sphere(speech(9)).replace(b"sample_rate", b"simple_rate"), "got a SPHERE header without 'sample_rate'"),
    ],
    ids=["mp3", "empty", "torn", "a-law", "shorten", "header"],
)
def test_a_sound_that_cannot_be_read_is_named(tmp_path, content, said):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(InputError, match=f"^{re.escape(str(tmp_path))}/a.wav .*{said}" if "got" in said else said):
        read_sound(tmp_path / "a.wav")


def test_a_sound_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"a.wav must be readable; got No such file or directory"):
        read_sound(tmp_path / "a.wav")


def test_resampling_keeps_a_low_tone_and_removes_one_that_8_khz_cannot_hold():
    time = np.arange(16_000) / 16_000
    for frequency, kept in ((440, 1.0), (6000, 0.0)):
        found = resampled(16_000, np.sin(2 * np.pi * frequency * time), 8000)
        assert len(found) == 8000
        assert np.sqrt(2 * np.square(found[1000:-1000]).mean()) == pytest.approx(kept, abs=0.02)
    wave = speech(500)
    assert resampled(8000, wave, 8000) is wave


@given(length=st.integers(1, 700), hop=st.sampled_from([8, 16]))
def test_a_spectrum_is_turned_back_into_its_sound(length, hop):
    wave = speech(length)
    frames = spectrum(wave, 32, hop)
    assert frames.shape[1] == 17
    np.testing.assert_allclose(resynthesised(frames, 32, hop, length), wave, rtol=0, atol=1e-12)


def test_segmental_snr_is_its_closed_form():
    wave = speech(2560)
    assert segmental_snr(wave, wave) == 35
    assert segmental_snr(wave, 0.9 * wave) == pytest.approx(20)
    assert segmental_snr(wave, 9 * wave) == -10
    assert segmental_snr(np.concatenate([wave, np.zeros(2560)]), np.concatenate([0.9 * wave, np.ones(2560)])) == (
        pytest.approx(20)
    )


def test_what_is_too_short_to_judge_is_left_out():
    wave = speech(600)
    assert set(quality(wave, wave)) == {"segsnr"}


def test_quality_without_its_packages_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pystoi", None)
    with pytest.raises(kreiss.errors.MissingExtra, match=r"Run: pip install 'kreiss\[audio\]'\.$"):
        quality(speech(600), speech(600))
