"""Tasks about relations: their answers follow from the images, their parts from what was held out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import kreiss
from kreiss.errors import InputError
from kreiss.pooled import Pooled
from kreiss.tasks import (
    TASKS,
    Comparison,
    Distribution,
    DistributionOfThree,
    IdentityRules,
    IdentityRules4,
    MatchToSample,
    MatchToSample3,
    SameDifferent,
    SameDifferent6,
    Separated,
)
from kreiss.tasks.relational.base import Relational
from kreiss.tasks.relational.glyphs import Glyphs

GLYPH_TASKS = {name: cls for name, cls in TASKS.items() if issubclass(cls, Glyphs)}


def shown(task, part, count=600):
    """Which distinct image is where (B, T), from the pixels alone, and the answers."""
    batches = [batch for batch in task.held_out("test", count) if batch.part == part]
    batch = batches[0]
    images = batch.inputs.expanded()  # (T, B, ...)
    _, index = torch.unique(images.flatten(0, 1).flatten(1), dim=0, return_inverse=True)
    return index.view(images.shape[:2]).T.numpy(), batch.targets.numpy()


def form(objects):
    """The pattern of a sequence: (0, 1, 0) for ABA."""
    names = {}
    return tuple(names.setdefault(one, len(names)) for one in objects)


def small(cls, **options):
    return cls(valid_sequences=60, test_sequences=600, **options)


PARTS = pytest.mark.parametrize("part", ["", "@unseen"])

# ---------------------------------------------------------------- answers


@PARTS
def test_same_or_different_says_whether_two_images_are_equal(part):
    where, answers = shown(small(SameDifferent, held_out=50), part)
    assert np.array_equal(answers, (where[:, 0] != where[:, 1]).astype(int))
    assert answers.mean() == 0.5


@PARTS
def test_a_match_has_the_relation_of_the_first_pair_and_six_places_use_their_own_glyphs(part):
    where, answers = shown(small(MatchToSample, held_out=50), part)
    for objects, answer in zip(where, answers, strict=True):
        pairs = [objects[0:2], objects[2:4], objects[4:6]]
        same = [pair[0] == pair[1] for pair in pairs]
        assert same[1] != same[2]
        assert same[1 + answer] == same[0]
        assert not set(pairs[0]) & set(pairs[1]) | set(pairs[0]) & set(pairs[2]) | set(pairs[1]) & set(pairs[2])
    assert 0.4 < answers.mean() < 0.6


@PARTS
def test_the_missing_glyph_of_a_distribution_of_three_is_where_the_answer_says(part):
    where, answers = shown(small(DistributionOfThree, held_out=50), part)
    orders = set()
    for objects, answer in zip(where, answers, strict=True):
        first, second, choices = objects[:3], objects[3:5], objects[5:]
        (missing,) = set(first) - set(second)
        assert choices[answer] == missing
        assert len(set(first)) == 3
        assert len(set(choices)) == 4
        assert set(first) < set(choices)
        orders.add(tuple(list(first).index(one) for one in (*second, missing)))
    assert len(orders) == 6  # the identity among them
    assert set(answers) == {0, 1, 2, 3}


@PARTS
def test_an_identity_rule_is_completed_by_the_answer(part):
    where, answers = shown(small(IdentityRules, held_out=50), part)
    forms = []
    for objects, answer in zip(where, answers, strict=True):
        choices = objects[5:]
        completed = (*objects[3:5], choices[answer])
        assert form(objects[:3]) == form(completed)
        assert not set(objects[:3]) & set(completed)
        assert len(set(choices)) == 4
        forms.append(form(objects[:3]))
    assert {one: forms.count(one) for one in set(forms)} == {(0, 0, 0): 200, (0, 1, 0): 200, (0, 1, 1): 200}


def test_six_objects_are_the_same_where_two_triplets_are_equal_and_the_test_has_a_pattern_that_training_has_not():
    task, triplets = small(SameDifferent6, held_out=50), {}
    for part in ("", "@unseen"):
        where, answers = shown(task, part)
        equal = (where[:, :3] == where[:, 3:]).all(1)
        assert np.array_equal(answers, (~equal).astype(int))
        assert answers.mean() == 0.5
        triplets[part] = {form(half) for row in where for half in (row[:3], row[3:])}
    assert triplets[""] == {(0, 0, 0), (0, 1, 1), (0, 1, 0)}
    where, _ = shown(task, "@unseen")
    assert all((0, 0, 1) in (form(row[:3]), form(row[3:])) for row in where)


def test_triplets_are_matched_by_their_pattern_with_unseen_patterns_in_the_test():
    task = small(MatchToSample3, held_out=50)
    expected = {"": {(0, 0, 0), (0, 1, 0), (0, 1, 1)}, "@unseen": {(0, 0, 1), (0, 1, 2)}}
    for part in ("", "@unseen"):
        where, answers = shown(task, part)
        for objects, answer in zip(where, answers, strict=True):
            thirds = [form(objects[3 * i : 3 * i + 3]) for i in range(3)]
            assert thirds[1 + answer] == thirds[0] != thirds[2 - answer]
            assert set(thirds) <= expected[part]
        distinct = {len(set(row)) for row in where}
        assert distinct == ({4, 5, 6} if part == "" else {7, 8})


FEW = {(0,) * 4, (0, 1, 0, 0), (0, 0, 1, 0), (0, 1, 1, 1), (0, 1, 1, 0), (0, 1, 0, 1), (0, 0, 1, 1)}
THREE = {(0, 1, 2, 0), (0, 1, 2, 1), (0, 1, 2, 2)}


@pytest.mark.parametrize(
    ("variant", "train", "test"),
    [
        ("plain", FEW, THREE),
        ("missing", FEW - {(0, 1, 0, 0), (0, 1, 0, 1)}, THREE),
        ("flipped", THREE, FEW),
        ("flipped-missing", THREE - {(0, 1, 2, 0)}, FEW),
    ],
)
def test_rules_of_four_are_completed_and_each_variant_shows_its_own(variant, train, test):
    task = small(IdentityRules4, variant=variant, held_out=50)
    for part, rules in (("", train), ("@unseen", test)):
        where, answers = shown(task, part)
        assert {form(row[:4]) for row in where} == rules
        for objects, answer in zip(where, answers, strict=True):
            completed = (*objects[4:7], objects[7:][answer])
            assert form(completed) == form(objects[:4])
            assert len(set(objects[7:])) == 6


@pytest.mark.parametrize("restricted", ["none", "preserving", "mixing"])
def test_a_restricted_distribution_shows_other_permutations_in_the_test(restricted):
    task = small(Distribution, n=6, restricted=restricted, held_out=50)
    for part in ("", "@unseen"):
        where, answers = shown(task, part)
        preserves = []
        for objects, answer in zip(where, answers, strict=True):
            first, second, choices = objects[:6], objects[6:11], objects[11:]
            (missing,) = set(first) - set(second)
            assert choices[answer] == missing
            preserves.append(set(first[:3]) == set(second[:3]))
        if restricted != "none":
            assert set(preserves) == {(restricted == "preserving") == (part == "")}
        else:
            assert set(preserves) == {True, False}


def test_coloured_backgrounds_say_nothing_and_are_the_same_in_training_and_test():
    task = small(SameDifferent, held_out=50, colour=True)
    colours = np.random.RandomState(0).rand(100, 3)
    for part in ("", "@unseen"):
        batch = next(batch for batch in task.held_out("test", 600) if batch.part == part)
        images = batch.inputs.expanded()
        background = images.amax((3, 4))  # white times the colour
        near = torch.cdist(background.flatten(0, 1).double(), torch.from_numpy(colours)).min(1)
        assert near.values.max() < 1e-6
        glyphs = images / background[..., None, None]
        same = (glyphs[0] - glyphs[1]).abs().amax((1, 2, 3)) < 1e-4
        assert torch.equal(batch.targets, (~same).long())
        used = near.indices.view(2, -1)
        assert (used[0] == used[1]).float().mean() < 0.1  # drawn independently, even for equal glyphs


def test_separated_colours_stand_between_the_glyphs():
    batch = next(batch for batch in small(Separated, held_out=50).held_out("test", 600) if batch.part)
    images = batch.inputs.expanded()
    flat = (images.amax((3, 4)) - images.amin((3, 4))).amax(2) == 0
    assert flat[1].all()
    assert flat[3].all()
    assert not flat[0].any()
    same = (images[0] == images[2]).all(3).all(2).all(1)
    assert torch.equal(batch.targets, (~same).long())


@pytest.mark.parametrize("transitive", [False, True])
def test_the_larger_glyph_is_the_answer_and_sizes_of_a_transitive_test_were_never_shown_together(transitive):
    task = small(Comparison, transitive=transitive, held_out=50)
    pairs = {}
    for part in ("", "@unseen"):
        batch = next(batch for batch in task.held_out("test", 600) if batch.part == part)
        dark = batch.inputs.expanded()[:, :, 0] < 0.99
        rows, columns = dark.any(3), dark.any(2)
        spans = [span.float().sum(-1) for span in (rows, columns)]
        height = torch.maximum(*spans)
        assert torch.equal(batch.targets, height.argmax(0))
        pairs[part] = set(zip(*(batch.inputs.index.tolist()), strict=True))
        assert 0.45 < batch.targets.float().mean() < 0.55
    seen, unseen = ({frozenset(pair) for pair in task.pairs(part)} for part in ("", "@unseen"))
    assert (seen & unseen == set()) == transitive


# ---------------------------------------------------------------- what is held out


@pytest.mark.parametrize("name", GLYPH_TASKS)
def test_held_out_glyphs_are_never_shown_in_training_and_the_seed_of_the_run_chooses_them(name):
    task = GLYPH_TASKS[name](held_out=50, valid_sequences=40, test_sequences=40).for_run(3)
    seen, unseen = (set(task.shapes[part].tolist()) for part in ("", "@unseen"))
    assert not seen & unseen
    assert len(seen) == len(unseen) == 50
    other = GLYPH_TASKS[name](held_out=50).for_run(4)
    assert set(other.shapes["@unseen"].tolist()) != unseen
    fixed = GLYPH_TASKS[name](held_out=50, split=7)
    assert np.array_equal(fixed.for_run(3).shapes[""], fixed.for_run(4).shapes[""])
    pool = {part: {image.numpy().tobytes() for image in _images(task, part)} for part in ("", "@unseen")}
    assert not pool[""] & pool["@unseen"] or name == "separated"  # flat colours are shared


def _images(task, part):
    return torch.cat([batch.inputs.images for batch in task.held_out("valid", 100) if batch.part == part])


def test_without_held_out_glyphs_both_parts_show_all():
    task = SameDifferent()
    assert set(task.shapes[""].tolist()) == set(task.shapes["@unseen"].tolist()) == set(range(100))


@pytest.mark.parametrize("name", GLYPH_TASKS)
def test_batches_are_functions_of_update_batch_and_seed_and_held_out_sets_of_nothing(name):
    make = lambda: GLYPH_TASKS[name](held_out=50, valid_sequences=30, test_sequences=50)  # noqa: E731
    one, two = make(), make()
    two.train(3, 20, 1)
    for update in (0, 5):
        assert torch.equal(one.train(update, 20, 1).inputs.expanded(), two.train(update, 20, 1).inputs.expanded())
    assert not torch.equal(one.train(0, 20, 1).inputs.expanded(), one.train(0, 20, 2).inputs.expanded())
    whole = [batch.inputs.expanded() for batch in one.held_out("test", 50)]
    parts = [batch.inputs.expanded() for batch in two.held_out("test", 7)]
    assert torch.equal(torch.cat(whole, 1), torch.cat(parts, 1))
    assert [batch.part for batch in two.held_out("valid", 30)] == ["", "@unseen"]


@pytest.mark.parametrize("name", GLYPH_TASKS)
def test_a_guess_reaches_the_baseline_and_nothing_more(name):
    task = GLYPH_TASKS[name](valid_sequences=30, test_sequences=6000)
    for part in ("", "@unseen"):
        _, answers = task._held_out("test", part)
        shares = np.bincount(answers, minlength=task.output_size) / len(answers)
        assert np.abs(shares - task.baseline()[f"accuracy{part}"]).max() < 5 * (0.25 / 6000) ** 0.5
    assert set(task.baseline()) == {"loss", "accuracy", "loss@unseen", "accuracy@unseen"}


def test_a_batch_carries_each_distinct_image_once():
    batch = DistributionOfThree(held_out=95).train(0, 96, 0)
    assert isinstance(batch.inputs, Pooled)
    assert len(batch.inputs.images) == 5
    assert len({image.numpy().tobytes() for image in batch.inputs.images}) == 5


# ---------------------------------------------------------------- training


def test_a_run_tells_seen_from_unseen_glyphs_and_is_chosen_by_the_seen_ones(tmp_path):
    settings = {"optimiser": "adam", "lr": 5e-4, "batch": 32, "eval_every": 20, "show": "quiet"}
    options = {"task.held_out": 98, "task.valid_sequences": 100, "task.test_sequences": 200}
    run = kreiss.fit("corelnet", "samedifferent", options, steps=60, out=tmp_path / "run", **settings)
    assert run.metrics["accuracy@unseen"] > 0.9
    assert set(run.metrics) == {"loss", "accuracy", "loss@unseen", "accuracy@unseen"}


def test_a_run_on_objects_is_resumed_bit_for_bit(tmp_path):
    settings = {"optimiser": "adam", "batch": 8, "eval_every": 5, "checkpoint_every": 5, "show": "quiet"}
    options = {"task.held_out": 90, "task.valid_sequences": 20, "task.test_sequences": 20}
    for model in ("corelnet", "gru"):
        whole = kreiss.fit(model, "rmts", options, steps=10, seed=2, **settings)
        kreiss.fit(model, "rmts", options, steps=7, seed=2, out=tmp_path / model, **settings)
        again = kreiss.fit(
            model, "rmts", options, steps=10, seed=2, out=tmp_path / model, resume=True, **settings
        )  # fmt: skip
        assert again.metrics == whole.metrics


def test_pieces_of_a_batch_give_the_gradient_of_the_whole():
    from kreiss.training.distributed import pieces

    task = SameDifferent(held_out=50)
    network = kreiss.relational.CoRelNet(2, 2).double()
    batch = task.train(0, 12, 0)

    def gradient(count):
        network.zero_grad()
        for piece in pieces(batch, count, "last"):
            loss = task.loss(network(piece.inputs.to(torch.float64))[0], piece) / count
            loss.backward()
        return [parameter.grad.clone() for parameter in network.parameters()]

    for one, other in zip(gradient(1), gradient(3), strict=True):
        torch.testing.assert_close(one, other)


def test_a_recurrent_layer_over_encoded_images_has_the_published_size():
    task = DistributionOfThree(held_out=95)
    run = kreiss.fit("lstm", task, hidden=512, steps=1, batch=4, eval_batch=10_000, show="quiet")
    assert sum(parameter.numel() for parameter in run.model.parameters()) == 1_515_748


# ---------------------------------------------------------------- own images and bad input


def test_images_of_another_size_and_images_that_are_not_there_are_refused():
    network = kreiss.RecurrentNetwork(kreiss.GRU(128, 4), 2, answers="last", image=(3, 12, 12))
    with pytest.raises(InputError, match=r"\(3, 12, 12\); got shape \(2, 5, 3, 20, 20\)"):
        network(torch.rand(2, 5, 3, 20, 20))
    with pytest.raises(InputError, match=r"`index` must be of the 2 images, from 0; got 0 to 2\."):
        Pooled(torch.rand(2, 3, 12, 12), torch.tensor([[0, 1, 2]]))


def _folder(path, sizes, count):
    from PIL import Image

    path.mkdir()
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (*sizes[number % len(sizes)], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path / f"{number:03}.png")
    return path


def test_own_images_are_objects_too(tmp_path):
    folder = _folder(tmp_path / "own", [(20, 24)], 12)
    task = DistributionOfThree(images=folder, held_out=6, valid_sequences=20, test_sequences=20)
    assert task.image == (3, 20, 24)
    run = kreiss.fit("corelnet", task, steps=2, batch=4, show="quiet")
    assert run.state == "finished"
    assert len(task.data_files()) == 12


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda _: DistributionOfThree(held_out=97), r"leave 4 of the 100 images .* Pass 0, or 4 to 96"),
        (lambda _: DistributionOfThree(held_out=3), "be 0 or at least 4"),
        (lambda _: MatchToSample3(held_out=7), "at least 8"),
        (lambda _: SameDifferent(held_out=-1), "held_out.* at least 0"),
        (lambda _: SameDifferent(split=-1), "split.* at least 0"),
        (lambda path: SameDifferent(images=path / "none"), "unknown images"),
        (lambda path: SameDifferent(images=path), "must hold images"),
        (lambda path: SameDifferent(images=_folder(path / "a", [(20, 20), (20, 21)], 3)), "of one size; got 20 × 20"),
        (
            lambda path: IdentityRules(images=_folder(path / "b", [(20, 20)], 3)),
            "IdentityRules .* needs 4 images; got 3",
        ),
        (lambda _: Distribution(100), "Distribution .* needs 101 images; got 100"),
        (lambda _: Separated(colour=True), "`colour` must be left out"),
        (lambda _: IdentityRules4("other"), "unknown variant"),
        (lambda _: Distribution(3, restricted="mixing"), "at least 4"),
        (lambda _: Distribution(10, restricted="some"), "unknown restricted"),
    ],
)
def test_bad_input_is_one_sentence(make, sentence, tmp_path):
    with pytest.raises(InputError, match=sentence):
        make(tmp_path)


def test_what_is_transparent_is_white_and_sixteen_bits_are_shades_of_grey(tmp_path):
    from PIL import Image

    folder = _folder(tmp_path / "own", [(20, 20)], 1)
    glyph = np.zeros((20, 20, 4), np.uint8)
    glyph[5:9, 5:9, 3] = 255  # black where it is opaque
    Image.fromarray(glyph).save(folder / "clear.png")
    grey = np.linspace(0, 65_535, 400).astype(np.uint16).reshape(20, 20)
    Image.fromarray(grey).save(folder / "deep.png")
    (folder / "below").mkdir()
    (folder / "notes.txt").write_text("not an image")
    task = SameDifferent(images=folder)
    assert [path.name for path in task.data_files()] == ["000.png", "clear.png", "deep.png"]
    _, clear, deep = task.glyphs
    assert np.array_equal(clear[0] == 0, glyph[:, :, 3] == 255)
    assert np.array_equal(clear[0] == 1, glyph[:, :, 3] == 0)
    np.testing.assert_allclose(deep[0], grey / 65_535, atol=1 / 255)


def test_images_that_are_the_same_are_named(tmp_path):
    folder = _folder(tmp_path / "own", [(20, 20)], 5)
    (folder / "again.png").write_bytes((folder / "002.png").read_bytes())
    with pytest.raises(InputError, match=r"must differ; got the same pixels in 002\.png and again\.png\."):
        SameDifferent(images=folder)


@pytest.mark.parametrize("classes", [2, 7])
def test_a_network_with_other_classes_than_the_task_is_refused(classes):
    sentence = rf"^a network must have as many classes as DistributionOfThree has answers, 4; got {classes}\. Build it"
    with pytest.raises(InputError, match=sentence):
        kreiss.fit(kreiss.relational.CoRelNet(9, classes), DistributionOfThree(), steps=1, batch=4, show="quiet")


@pytest.mark.parametrize("model", ["corelnet", "lstm"])
def test_the_word_none_chooses_no_normalisation(model, does, tmp_path):
    sizes = ["--steps", "1", "--batch", "4", "--task.valid_sequences", "8", "--task.test_sequences", "8"]
    options = ["--model", model, "--model.normalisation", "none", *(["--hidden", "4"] if model == "lstm" else [])]
    code, said, complaint = does("train", "samedifferent", *options, *sizes, "--out", tmp_path / "run")
    assert code == 0, complaint
    assert "loss guessing 0.6931" in said
    assert isinstance(kreiss.load(tmp_path / "run").front.norm, torch.nn.Identity)


def test_a_damaged_image_is_named(tmp_path):
    folder = _folder(tmp_path / "own", [(20, 20)], 5)
    (folder / "002.png").write_bytes(b"not an image")
    with pytest.raises(InputError, match=r"002\.png` must be an image"):
        SameDifferent(images=folder)


def test_a_network_for_objects_refuses_a_task_without_them():
    with pytest.raises(InputError, match="corelnet must be given sequences of images"):
        kreiss.fit("corelnet", "copy", steps=1, show="quiet")


def test_every_task_of_objects_is_relational():
    assert all(issubclass(cls, Relational) for cls in GLYPH_TASKS.values())
    assert len(GLYPH_TASKS) == 10
