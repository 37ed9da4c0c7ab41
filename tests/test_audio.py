"""A user's own sounds: read from folders and lists, turned into features, classified or measured."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import kreiss
from kreiss import InputError
from kreiss.errors import MissingExtra
from kreiss.preprocessing.sound import Sound, mel_filters, read_sound
from kreiss.tasks import Audio
from small_tasks import same
from sounds import riff, speech


def tone(frequency: float, seconds: float = 0.2, rate: int = 8000) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * frequency * np.arange(int(seconds * rate)) / rate)


def test_folders_and_a_list_of_files_are_the_same_task(files, tmp_path):
    by_folder = Audio(files / "sounds", bands=8)
    assert by_folder.classes.tolist() == ["high", "low"]
    assert all(
        file.parent.name == by_folder.classes[asked]
        for file, asked in zip(by_folder.sounds, by_folder.asked, strict=True)
    )
    lines = "".join(f"{file},{file.parent.name}\n" for file in by_folder.sounds)
    (tmp_path / "list.csv").write_text("file,label\n" + lines)
    by_list = Audio(tmp_path / "list.csv", bands=8)
    assert same(by_list.train(0, 4, 0), by_folder.train(0, 4, 0))
    assert by_list.data_files() == [*by_folder.data_files(), tmp_path / "list.csv"]


def test_numbers_about_sounds_are_a_regression(tmp_path):
    rows = ["sound,pitch"]
    for number in range(12):
        (tmp_path / f"{number}.wav").write_bytes(riff(tone(200 + 50 * number)))
        rows.append(f"{number}.wav,{200.5 + 50 * number}")
    (tmp_path / "list.csv").write_text("\n".join(rows) + "\n")
    task = Audio(tmp_path / "list.csv", files="sound", targets="pitch", bands=12)
    assert (task.kind, task.output_size, task.preprocessing().targets) == ("regression", 1, ("pitch",))
    assert [float(part[0]) for part in task.asked] == [200.5 + 50 * number for number in range(12)]


def test_flac_is_read_as_wav_is_and_needs_its_package(tmp_path, monkeypatch):
    soundfile = pytest.importorskip("soundfile", reason="needs the extra audio")
    wave = np.round(speech(900) * 2**15) / 2**15
    (tmp_path / "a.wav").write_bytes(riff(wave))
    soundfile.write(tmp_path / "a.flac", np.stack([wave, wave], 1), 8000)
    (rate, plain), (other, packed) = read_sound(tmp_path / "a.wav"), read_sound(tmp_path / "a.flac")
    assert rate == other == 8000
    np.testing.assert_allclose(packed, plain, atol=1e-9)
    (tmp_path / "b.flac").write_bytes((tmp_path / "a.flac").read_bytes()[:40])
    with pytest.raises(InputError, match=r"b\.flac must hold plain PCM of 8 to 32 bits or floats; got "):
        read_sound(tmp_path / "b.flac")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingExtra, match=r"reading \.flac files needs the package soundfile.*kreiss\[audio\]"):
        read_sound(tmp_path / "a.flac")


def test_a_tone_is_loudest_in_the_mel_band_around_it():
    sound = Sound(8000, 256, 128, "mel", bands=20)
    centres = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 4000 / 700), 22)[1:-1] / 2595) - 1)
    for frequency in (300.0, 1000.0, 3000.0):
        frames = sound.frames(8000, tone(frequency))
        assert frames.shape[1] == 20
        assert abs(int(frames[5].argmax()) - int(np.abs(centres - frequency).argmin())) <= 1
    filters = mel_filters(20, 2048, 8000)
    np.testing.assert_allclose(filters.max(0), 1, atol=0.1)
    inner = (np.fft.rfftfreq(2048, 1 / 8000) > centres[0]) & (np.fft.rfftfreq(2048, 1 / 8000) < centres[-1])
    np.testing.assert_allclose(filters[inner].sum(1), 1, atol=1e-9)  # between two centres a frequency is shared


def test_frames_of_samples_hold_every_sample_once_where_window_is_hop():
    wave = speech(105)
    frames = Sound(8000, 10, 10, "samples").frames(8000, wave)
    np.testing.assert_allclose(frames.reshape(-1)[:105], wave, atol=1e-7)
    assert frames.shape == (11, 10)
    assert Sound(8000, 10, 10, "samples").frames(8000, wave[:3]).shape == (1, 10)


def test_sounds_of_two_rates_are_resampled_only_if_asked(tmp_path):
    for number in range(9):
        folder = tmp_path / ("a" if number % 2 else "b")
        folder.mkdir(exist_ok=True)
        rate = 16_000 if number == 5 else 8000
        (folder / f"{number}.wav").write_bytes(riff(tone(300 + 90 * number, rate=rate), rate))
    with pytest.raises(InputError, match=r"must have one rate; got 8000 Hz in .* and 16000 Hz in .*5\.wav\. Pass"):
        Audio(tmp_path)
    task = Audio(tmp_path, rate=8000, bands=12)
    place = [file.name for file in task.sounds].index("5.wav")
    assert task.preprocessing().sound.rate == 8000
    assert len({len(part) for part in task.encoded}) == 1  # all of 0.2 seconds
    wanted = task.sound.frames(8000, tone(300 + 90 * 5))[3:-3]
    loud = wanted > -5
    np.testing.assert_allclose(task.sequences.inputs[place][3:-3][loud], wanted[loud], atol=0.05)


def test_a_sound_of_another_rate_is_resampled_for_a_prediction(files):
    task = Audio(files / "sounds", bands=8)
    network = kreiss.fit("gru", task, hidden=6, steps=30, lr=1e-2, show="quiet").model
    for frequency, name in ((0.9 * 8000 / (2 * np.pi), "high"), (0.3 * 8000 / (2 * np.pi), "low")):
        fast = network.predict((22_050, tone(frequency, rate=22_050)))
        slow = network.predict((8000, tone(frequency)))
        assert fast.classes == slow.classes == name
        np.testing.assert_allclose(fast.numbers, slow.numbers, atol=0.05)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": ""}, "`path` must name a folder of sounds or a table of them; got none"),
        ({"path": "nowhere"}, "a data file must exist; got nowhere"),
        (
            {"path": "loose"},
            r"must hold a folder of sounds .* for each of two or more classes; got 0\.wav in no folder",
        ),
        ({"path": "one"}, "for each of two or more classes; got 1 sounds in 1 folders"),
        ({"path": "list.csv"}, "unknown column of list.csv 'label'. Did you mean 'lable'"),
        (
            {"path": "list.csv", "targets": "lable"},
            "column 'lable' of list.csv must have a value in every row; got none",
        ),
        ({"features": "mfcc"}, "unknown features 'mfcc'"),
        ({"window": 0.0}, "`window` must be at least a sample, in seconds; got window=0.0"),
        ({"hop": 1e-9}, "`hop` must be at least a sample, in seconds; got hop=1e-09"),
        ({"window": 0.01, "hop": 0.02}, "a frame must have an even number of samples, at least those of `hop`; got 80"),
        ({"bands": 200}, "every mel band must hold a frequency; got bands=200 for frames of 200 samples"),
        ({"floor": 0.0}, "`floor` must be positive"),
        ({"rate": 900}, "`rate` must be from 1000 to 768000 Hz; got rate=900"),
    ],
)
def test_sounds_that_do_not_fit_are_refused(options, said, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("loose/0.wav", "one/a/0.wav"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(riff(speech(400)))
    (tmp_path / "list.csv").write_text("file,lable\na.wav,\n")
    with pytest.raises(InputError, match=said) as caught:
        Audio(**{"path": files / "sounds", "bands": 8, **options})
    assert "\n" not in str(caught.value)
