"""The stories and sums that a small model is trained on, and the judge of what it writes."""
import contextlib
import errno
import hashlib
import itertools
import os
import random
import re
import types

import pytest

from tinytorch.training import data
from tinytorch.training.data import (
    BOYS, COLOURS, GIRLS, PATTERNS, THINGS, ByteTokenizer, check_story, decided, documents, expression, held_out, held_out_sums,
    joined, make_story, make_sum, parse, take_place,
)

STORY = ('One day, Mia played with her red ball. Her friend Tom brought his orange kite. He lost his orange kite. '
         'Mia liked Tom\'s orange kite. Then she was happy. Tom asked Mia for her red ball. There were two old dogs '
         'near the river. The red ball was wet. They went home.')
ALONE = ('One day, Mia played with her red ball. She took her red ball to the park. Soon Mia saw an old dog. '
         'The red ball was wet. In the end, Mia went home.')


def stories(count, seed=0, children=None):
    rng = random.Random(seed)
    return [make_story(rng, children) for _ in range(count)]


@pytest.mark.parametrize("children", [1, 2])
def test_every_story_is_found_right(children):
    for story in stories(500, children=children):
        check = check_story(story)
        assert check.consistent and check.children == children, (story, check)
        assert 3 + children <= len(check.sentences) <= 5 + children


def test_the_stories_above_are_right():
    for story, children in ((STORY, 2), (ALONE, 1)):
        assert check_story(story).consistent and check_story(story).children == children, check_story(story)


def test_stories_are_of_one_child_or_of_a_girl_and_a_boy():
    counts = {}
    for story in stories(1000):
        names = frozenset(re.findall("|".join([*GIRLS, *BOYS]), story))
        counts[len(names)] = counts.get(len(names), 0) + 1
        assert len(names & {*GIRLS}) <= 1 and len(names & {*BOYS}) <= 1
    assert counts.keys() == {1, 2} and min(counts.values()) > 450


def test_a_sentence_is_read_in_one_way_only():
    for story in stories(200):
        for sentence in re.split(r"(?<=\.) ", story):
            assert sum(expression(pattern).fullmatch(sentence) is not None for _, pattern in PATTERNS) == 1, sentence


def test_seeds():
    first, again, other = (list(itertools.islice(documents(seed), 50)) for seed in (1, 1, 2))
    assert first == again != other
    assert all("\n" not in document for document in first)


def test_the_same_seed_gives_these_texts_on_every_machine():
    """The tiny model has learnt from such texts: who changes them trains it anew."""
    rng, halves = random.Random(0), {"children": 2, "middle": 4, "owning": 1, "halves": True}
    texts = [*itertools.islice(documents(0), 3000), *(make_story(rng, **halves) for _ in range(200))]
    assert texts[:2] == ["Once upon a time, Omar went out with his black basket. Soon Omar drove to the empty lake. The black basket "
                         "was light. In the end, Omar waved and said goodbye.", "334+82=416"]
    assert hashlib.sha256("\n".join(texts).encode("utf-8")).hexdigest() == (
        "965b6c8be107c90a1b81d8a1945d8fd714af8bf981c1a69a01522555df791a8e")


def test_the_share_of_sums():
    texts = list(itertools.islice(documents(0, sums=0.25), 2000))
    assert 0.2 < sum("=" in text for text in texts) / 2000 < 0.3


def test_the_vocabulary_is_a_few_hundred_words():
    words = {word for story in stories(3000) for word in re.findall(r"[a-z]+", story.lower())}
    assert 200 < len(words) < 500


def assert_contradiction(story, old, new, problem):
    """With `new` in the place of `old`, every sentence is still grammatical, and the problem is named."""
    assert old in story
    check = check_story(story.replace(old, new))
    assert check.grammatical, check.sentences
    assert not check.consistent
    assert any(problem in found for found in check.problems), check.problems


@pytest.mark.parametrize("old, new, problem", [
    # names
    ("Mia liked Tom's", "Zoe liked Tom's", "Zoe is not in this story"),
    ("Mia liked Tom's", "Mia liked Ben's", "Ben is not in this story"),
    ("Mia liked Tom's", "Tom liked Mia's", "Mia has a red ball, not an orange kite"),
    ("friend Tom brought his", "friend Mia brought her", "Mia comes a second time"),
    ("Tom asked Mia for her", "He asked Mia for her", "he should be Mia".replace("he", "He")),
    # colours and things
    ("lost his orange kite", "lost his red ball", "Tom has an orange kite, not a red ball"),
    ("lost his orange kite", "lost his orange ball", "not an orange ball"),
    ("The red ball was", "The blue ball was", "nobody has a blue ball"),
    ("Tom's orange kite", "Tom's green kite", "not a green kite"),
    ("for her red ball", "for her orange kite", "Mia has a red ball"),
    ("brought his orange kite", "brought his red ball", "two children have a red ball"),
    # pronouns
    ("Then she was", "Then he was", "he should be Mia"),
    ("He lost his", "She lost her", "She should be Tom"),
    ("Her friend", "His friend", "His friend, but Mia is a girl"),
    ("The red ball was wet. They", "He was happy. They", "He stands for nobody"),
    ("Then she was happy", "Then she gave Mia an apple", "Mia should be the other child"),
    # order
    ("One day, Mia played with her red ball. ", "", "kind second stands where first"),
    ("He lost his orange kite.", "Her friend Ben brought his blue cup.", "stands where the story goes on"),
    ("He lost his orange kite.", "One day, Ben played with his blue cup.", "kind first stands where the story goes on"),
])
def test_contradictions_are_found(old, new, problem):
    assert_contradiction(STORY, old, new, problem)


def test_the_middle_of_a_story():
    rng = random.Random(4)
    for _ in range(50):
        sentences = re.split(r"(?<=\.) ", make_story(rng, children=2, middle=6, owning=1))[2:-1]
        assert len(sentences) == 6 and all(re.search("|".join(THINGS), sentence) for sentence in sentences)
        assert len(re.split(r"(?<=\.) ", make_story(rng, children=2, middle=0))) == 3          # the first, the second and the last


def test_girls_and_boys_have_different_things():
    rng, things = random.Random(5), {"girl": set(), "boy": set()}
    for _ in range(300):
        for sentence in re.split(r"(?<=\.) ", make_story(rng, children=2, halves=True))[:2]:
            found = parse(sentence)[1]
            things["girl" if found["name"] in GIRLS else "boy"].add(found["mine"].split()[1])
    assert things == {"girl": set(THINGS[::2]), "boy": set(THINGS[1::2])}


@pytest.mark.parametrize("old, new, problem", [
    ("Soon Mia saw", "Soon Zoe saw", "Zoe is not in this story"),                       # names
    ("In the end, Mia", "In the end, Tom", "Tom is not in this story"),
    ("took her red ball", "took her blue ball", "Mia has a red ball, not a blue ball"),   # colours and things
    ("took her red ball", "took her red kite", "Mia has a red ball, not a red kite"),
    ("The red ball", "The green ball", "nobody has a green ball"),
    ("She took her", "He took his", "He should be Mia, who is a girl"),                 # pronouns
    ("In the end, Mia", "In the end, she", "she stands for nobody"),
    ("In the end, Mia", "In the end, they", "they are only one child"),                 # how many
    ("Soon Mia saw an old dog", "They sang all day", "they are only one child"),
    ("Soon Mia saw an old dog", "Mia liked Tom's red ball", "Tom is not in this story"),
    ("Soon Mia saw an old dog", "Her friend Tom brought his orange kite", "kind second stands where the story goes on"),
    ("One day, Mia played with her red ball. ", "", "kind middle stands where first"),
])
def test_contradictions_in_a_story_of_one_child_are_found(old, new, problem):
    assert_contradiction(ALONE, old, new, problem)


def swap(story, one, other):
    return re.sub(rf"\b({one}|{other})\b", lambda m: other if m[0] == one else one, story)


def test_swapped_owners_are_refused():
    """In a later sentence exchange the things or the colours of the two children."""
    for story in stories(300, seed=1, children=2):
        sentences = re.split(r"(?<=\.) ", story)
        names = [name for name in [*GIRLS, *BOYS] if name in story]
        things = re.findall(r"((?:%s) (?:%s))\." % ("|".join(COLOURS), "|".join(THINGS)), " ".join(sentences[:2]))
        assert len(names) == len(things) == 2
        for i in range(2, len(sentences)):
            for one, other in (things, [thing.split()[0] for thing in things]):
                changed = swap(sentences[i], one, other)
                if changed != sentences[i] and not sentences[i].startswith("The "):     # "The red ball was wet" fits both
                    check = check_story(" ".join([*sentences[:i], changed, *sentences[i + 1:]]))
                    assert not check.consistent, (sentences[i], changed)


def test_another_name_or_colour_in_a_story_of_one_child_is_refused():
    for story in stories(100, seed=3, children=1):
        begin, rest = re.match(r"(.*?\. )(.*)", story).groups()
        name = next(name for name in [*GIRLS, *BOYS] if re.search(rf"\b{name}\b", begin))
        colour = next(colour for colour in COLOURS if f" {colour} " in begin)
        for old, new in ((name, "Zoe" if name in BOYS else "Tom"), (colour, "red" if colour != "red" else "blue")):
            changed = re.sub(rf"\b{old}\b", new, rest)
            assert changed == rest or not check_story(begin + changed).consistent, begin + changed


def test_swapped_pronouns_are_refused():
    found = 0
    for story in stories(300, seed=2):                             # of one child and of two
        for one, other in (("He", "She"), ("he", "she")):
            for match in re.finditer(rf"\b({one}|{other})\b", story):
                changed = story[:match.start()] + (other if match[0] == one else one) + story[match.end():]
                found += 1
                assert not check_story(changed).consistent, changed
    assert found > 100


@pytest.mark.parametrize("sentence", [
    "Mia lost his red ball.", "Tom lost her red ball.", "She lost his red ball.",                   # whose
    "Mia liked Mia's red ball.",
    "Mia saw a old dog.", "Mia saw an dog.", "Mia saw two old dog.", "Mia saw an small dog.", "Mia saw two old gooses.",
    "There was two old dogs near the river.", "There were an old dog near the river.", "Mia ate a apple.",
    "One day, Mia played with his red ball.", "Her friend Tom brought her orange kite.", "Tom asked Mia for his red ball.",
    "Then He was happy.", "she was happy.", "Mia were happy.", "They was happy.", "Mia was happy", "Mia was happy!", "Mia  was happy.",
    "Mia was hapy.", "The red was wet.", "mia was happy.", "", ".", "27+45=72",
])
def test_what_the_grammar_does_not_make(sentence):
    assert parse(sentence) is None
    check = check_story(STORY.replace("Then she was happy.", sentence or "x."))
    assert not check.grammatical and not check.consistent


def test_an_unfinished_story_is_not_consistent():
    check = check_story(STORY[:-5])
    assert [good for _, good in check.sentences].count(False) == 1 and not check.sentences[-1][1]


def test_who_acts_in_a_sentence_that_nobody_understands_is_not_known():
    assert check_story("One day, Mia played with her red ball. Mia was hapy. She went home.").problems == ["She stands for nobody"]


@pytest.mark.parametrize("text", ["", "  ", "They went home.", "Mia went home."])
def test_what_is_no_story_is_not_consistent(text):
    assert not check_story(text).consistent


def test_what_a_story_decides():
    """Names and things that come again, and pronouns; "friend" and "happy" could be other words."""
    for story, words in (
        (STORY, "her Her his He his orange kite Mia Tom orange kite she Tom Mia her red ball red ball They"),
        (ALONE, "her She her red ball Mia red ball Mia"),
    ):
        places, found = decided(story), []
        assert len(places) == len(story)
        for match in re.finditer(r"\w+", story):
            if places[match.start()]:
                found.append(match[0])
                assert places[match.start():match.end()] == list(range(1, len(match[0]) + 1))
        assert found == words.split() and sum(place > 0 for place in places) == sum(map(len, found))


def test_where_girls_and_boys_have_different_things_new_things_are_decided_too():
    plain, halves = decided(STORY), decided(STORY, halves=True)
    more = [i for i, (place, other) in enumerate(zip(plain, halves)) if place != other]
    assert "".join(STORY[i] for i in more) == "ballkite"
    assert [halves[i] for i in more] == [1, 2, 3, 4, 1, 2, 3, 4] and more[0] == STORY.index("ball")


def test_sums_are_right_and_the_held_out_ones_never_written():
    rng = random.Random(0)
    seen = set()
    for _ in range(60_000):
        a, b, c = map(int, re.fullmatch(r"(\d+)\+(\d+)=(\d+)", make_sum(rng)).groups())
        assert a + b == c
        assert not (a < 100 and b < 100 and str(b)[-1] in "05"), (a, b)
        if 10 <= a < 100 and 10 <= b < 100:
            seen.add((a, b))
    pairs = {(a, b) for a in range(10, 100) for b in range(10, 100)}
    assert set(held_out_sums()) == {(a, b) for a, b in pairs if held_out(a, b)} and len(held_out_sums()) == 1620
    assert len(seen) > 0.95 * (len(pairs) - 1620)


def test_bytes_as_tokens():
    tokenizer = ByteTokenizer()
    text = "Grüße, 27 €\n\0"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("a<eos>b") == [97, tokenizer.eos_id, 98]
    assert tokenizer.decode([97, 256, 98]) == "a<eos>b"
    assert tokenizer.encode("") == [] and tokenizer.decode([]) == ""
    assert tokenizer.decode([0xC3]) == "�"
    assert max(tokenizer.encode(text + "<eos>")) < tokenizer.vocab_size == 257
    stream = tokenizer.text_stream()
    assert [stream.feed([i]) for i in "ü".encode()] == ["", "ü"]
    for wrong in (-1, 257):
        with pytest.raises(ValueError, match="0..256"):
            tokenizer.decode([wrong])
    for wrong in (b"a", None, ["a", "b"]):
        with pytest.raises(TypeError, match="one text, a str"):
            tokenizer.encode(wrong)
    with pytest.raises(ValueError, match="conversations"):
        tokenizer.chat([{"role": "user", "content": "hello"}])


def test_documents_are_joined_by_eos():
    assert joined(["a", "bc"]) == [256, 97, 256, 98, 99, 256]
    assert joined([]) == [256]


@pytest.mark.parametrize("system, refusals, tries", [("nt", 0, 1), ("nt", 3, 4), ("nt", 10**9, None), ("posix", 1, 1)])
def test_a_file_takes_the_place_of_another(tmp_path, monkeypatch, system, refusals, tries):
    """On Windows another program may have it open for a moment; elsewhere a refusal is final at once."""
    new, old, calls, replace = tmp_path / "new", tmp_path / "old", [], os.replace
    new.write_bytes(b"new")
    old.write_bytes(b"old")

    def refuse(*paths):
        calls.append(paths)
        if len(calls) <= refusals:
            raise PermissionError(errno.EACCES, "Access is denied")
        replace(*paths)
    monkeypatch.setattr(data, "os", types.SimpleNamespace(name=system, replace=refuse))
    done = tries == refusals + 1
    with contextlib.nullcontext() if done else pytest.raises(PermissionError):
        take_place(new, old, seconds=60 if done else 0.2)
    assert (new.exists(), old.read_bytes()) == (not done, b"new" if done else b"old")
    assert len(calls) == tries if tries else len(calls) > 1
