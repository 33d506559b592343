"""Templated text of three families, for the tiny synthetic pair: the same seed gives the same text everywhere.

What makes text easy to draft is what makes it predictable from its context, and the three families differ in it on purpose. A worked
solution repeats the figures of its problem inside fixed phrases; a function is a fixed body under names from the prompt; a chat
answer is put together from many sentences, chosen by its subject. All wording is the project's own.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .prompts import code_wording, math_wording

NAMES = ("Priya", "Tomas", "Lena", "Omar", "Mei", "Ana", "Jonas", "Ruth", "Samir", "Ida", "Paul", "Nora", "Felix", "Zoe")
GOODS = (
    "jars",
    "apples",
    "books",
    "cards",
    "eggs",
    "pens",
    "stamps",
    "shells",
    "plates",
    "seats",
    "bottles",
    "boxes",
    "pages",
    "tickets",
)
HOLDERS = ("shelves", "baskets", "bags", "crates", "wagons", "rows", "buckets", "drawers")
VEHICLES = ("ferry", "bus", "truck", "train", "boat", "van", "lift")
PASSENGERS = ("cars", "people", "boxes", "bikes", "bags", "pupils")
MACHINES = ("printer", "pipe", "pump", "press", "robot", "mill")
WISHES = ("tent", "bike", "lamp", "coat", "guitar", "camera", "desk")
GROUNDS = ("garden", "field", "yard", "park", "pool", "court")
PAIRS = (("loaf", "roll"), ("cake", "pie"), ("pot", "cup"), ("adult", "child"), ("box", "bag"), ("shirt", "hat"))


@dataclass(frozen=True)
class Exchange:
    """A prompt of a family and the answer the target is trained to give."""

    family: str
    prompt: str
    answer: str


@dataclass(frozen=True)
class Step:
    """One line of a worked solution: what is computed, and from what."""

    what: str
    left: int
    sign: str
    right: int

    @property
    def value(self) -> int:
        """The result of the line."""
        operations: dict[str, Callable[[int, int], int]] = {
            "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__,
        }  # fmt: skip
        return operations[self.sign](self.left, self.right)


def exchanges(num: int, seed: int) -> Iterator[Exchange]:
    """`num` exchanges, the families in turn."""
    generator = random.Random(seed)
    families = (math_exchange, code_exchange, chat_exchange)
    for index in range(num):
        yield families[index % len(families)](generator)


def math_exchange(generator: random.Random) -> Exchange:
    """A word problem with its solution, one computation a line."""
    problem, steps = generator.choice(PROBLEMS)(generator)
    lines = [
        f"Step {n}: Now we want to {step.what}. To do so, we compute {step.left} {step.sign} {step.right} = {step.value}."
        for n, step in enumerate(steps, start=1)
    ]
    closing = f"That is all we need, and therefore the final answer is \\boxed{{{steps[-1].value}}}."
    answer = "\n".join(["Let us solve this problem step by step.", *lines, closing])
    return Exchange("math", math_wording(problem), answer)


def _trips(r: random.Random) -> tuple[str, list[Step]]:
    what, load = r.choice(VEHICLES), r.choice(PASSENGERS)
    trips, each, price, days = r.randint(2, 9), r.randint(11, 59), r.randint(2, 9), r.randint(2, 9)
    problem = (
        f"A {what} makes {trips} trips a day and carries {each} {load} on each trip. "
        f"Each of the {load} pays {price} dollars. How many dollars does the {what} collect in {days} days?"
    )
    first = Step(f"find the number of {load} on one day", trips, "*", each)
    second = Step("find the number of dollars on one day", first.value, "*", price)
    return problem, [first, second, Step("find the number of dollars in all", second.value, "*", days)]


def _stock(r: random.Random) -> tuple[str, list[Step]]:
    name, holders, goods = r.choice(NAMES), r.choice(HOLDERS), r.choice(GOODS)
    num, each = r.randint(2, 9), r.randint(11, 49)
    sold = r.randint(2, num * each - 1)
    verb = r.choice(("sells", "gives", "picks", "loses"))
    problem = (
        f"{name} has {num} {holders} with {each} {goods} on each. She {verb} {sold} {goods} on Saturday. How many {goods} remain?"
    )
    first = Step(f"find the number of {goods} in all", num, "*", each)
    return problem, [first, Step(f"find the number of {goods} that remain", first.value, "-", sold)]


def _rate(r: random.Random) -> tuple[str, list[Step]]:
    machine, goods = r.choice(MACHINES), r.choice(GOODS)
    rate, minutes, copies = r.randint(2, 30), r.randint(2, 9), r.choice((2, 3, 4, 6))
    each = rate * minutes
    problem = (
        f"A {machine} makes {rate} {goods} per minute. How many minutes does it need for {copies} copies of a booklet "
        f"that has {each} {goods}?"
    )
    first = Step(f"find the number of {goods} in all", copies, "*", each)
    return problem, [first, Step("find the number of minutes", first.value, "/", rate)]


def _recipe(r: random.Random) -> tuple[str, list[Step]]:
    (big, small), goods = r.choice(PAIRS), r.choice(("flour", "sugar", "wool", "clay", "paper"))
    a, b, c, d = 10 * r.randint(5, 40), 10 * r.randint(1, 9), r.randint(2, 19), r.randint(2, 39)
    problem = (
        f"A bakery uses {a} grams of {goods} for one {big} and {b} grams for one {small}. "
        f"How many grams of {goods} does it need for {c} of the first and {d} of the second?"
    )
    first, second = Step("find the grams for the first", c, "*", a), Step("find the grams for the second", d, "*", b)
    return problem, [first, second, Step("find the number of grams in all", first.value, "+", second.value)]


def _savings(r: random.Random) -> tuple[str, list[Step]]:
    name, wish = r.choice(NAMES), r.choice(WISHES)
    weekly, has, weeks = r.randint(5, 25), r.randint(10, 90), r.randint(2, 12)
    problem = (
        f"{name} saves {weekly} dollars every week. She already has {has} dollars and wants to buy a {wish} that costs "
        f"{has + weekly * weeks} dollars. After how many weeks can she buy it?"
    )
    first = Step("find the number of dollars that are missing", has + weekly * weeks, "-", has)
    return problem, [first, Step("find the number of weeks", first.value, "/", weekly)]


def _fence(r: random.Random) -> tuple[str, list[Step]]:
    ground, long, wide, price = r.choice(GROUNDS), r.randint(9, 40), r.randint(3, 30), r.randint(2, 15)
    problem = (
        f"A rectangular {ground} is {long} meters long and {wide} meters wide. A fence costs {price} dollars per meter. "
        f"What does it cost to put a fence around the whole {ground}?"
    )
    first = Step("find the length of two sides", long, "+", wide)
    second = Step("find the length of all sides", 2, "*", first.value)
    return problem, [first, second, Step("find the number of dollars in all", second.value, "*", price)]


def _tickets(r: random.Random) -> tuple[str, list[Step]]:
    place = r.choice(("cinema", "museum", "zoo", "theater", "library"))
    a, b, c, d = r.randint(50, 200), r.randint(6, 15), r.randint(20, 99), r.randint(2, 6)
    problem = (
        f"A {place} sold {a} adult tickets at {b} dollars and {c} child tickets at {d} dollars. "
        f"How many dollars did the {place} take in total?"
    )
    first, second = (
        Step("find the number of dollars from adults", a, "*", b),
        Step("find the number of dollars from children", c, "*", d),
    )
    return problem, [first, second, Step("find the number of dollars in all", first.value, "+", second.value)]


def _school(r: random.Random) -> tuple[str, list[Step]]:
    total, by_bus, walk = 10 * r.randint(30, 60), r.randint(50, 150), r.randint(30, 140)
    problem = f"In a school of {total} pupils, {by_bus} come by bus, {walk} walk, and all others cycle. How many pupils cycle?"
    first = Step("find the number of pupils who do not cycle", by_bus, "+", walk)
    return problem, [first, Step("find the number of pupils who cycle", total, "-", first.value)]


PROBLEMS = (_trips, _stock, _rate, _recipe, _savings, _fence, _tickets, _school)


@dataclass(frozen=True)
class Function:
    """A function to be written: its names, its argument's, what it does, and its body; {x} is the argument, {y} a local name."""

    names: tuple[str, ...]
    arguments: tuple[str, ...]
    does: str
    body: tuple[str, ...]
    result: str


FUNCTIONS = (
    Function(
        ("count_vowels", "num_vowels", "vowel_count"), ("text", "word", "line"), "returns how many vowels a string contains",
        ("{y} = 0", "for letter in {x}.lower():", '    if letter in "aeiou":', "        {y} += 1"), "{y}",
    ),
    Function(
        ("second_largest", "runner_up", "next_best"), ("values", "numbers", "items"),
        "takes a list of integers and returns the second largest distinct value, or None when there is none",
        ("{y} = sorted(set({x}))", "if len({y}) < 2:", "    return None"), "{y}[-2]",
    ),
    Function(
        ("running_total", "partial_sums", "add_up"), ("values", "numbers", "prices"),
        "returns a list whose item i is the sum of the first values up to i",
        ("total = 0", "{y} = []", "for value in {x}:", "    total += value", "    {y}.append(total)"), "{y}",
    ),
    Function(
        ("is_palindrome", "reads_backwards", "same_reversed"), ("word", "text", "name"),
        "checks whether a word is a palindrome, ignoring spaces and letter case",
        ('{y} = {x}.replace(" ", "").lower()',), "{y} == {y}[::-1]",
    ),
    Function(
        ("count_words", "word_counts", "tally"), ("text", "line", "path"),
        "reads a text and returns a dictionary with the number of times each word appears",
        ("{y} = {{}}", "for word in {x}.split():", "    {y}[word] = {y}.get(word, 0) + 1"), "{y}",
    ),
    Function(
        ("fibonacci", "first_numbers", "sequence"), ("n", "num", "length"),
        "returns the first n Fibonacci numbers as a list, with a loop",
        ("{y} = []", "a, b = 0, 1", "for _ in range({x}):", "    {y}.append(a)", "    a, b = b, a + b"), "{y}",
    ),
    Function(
        ("is_leap_year", "has_extra_day", "leap"), ("year", "y", "number"),
        "tells whether a year of the Gregorian calendar has a 29th of February",
        ("if {x} % 400 == 0:", "    return True"), "{x} % 4 == 0 and {x} % 100 != 0",
    ),
    Function(
        ("flatten", "unnest", "level"), ("items", "nested", "values"), "flattens a nested list into one list",
        (
            "{y} = []", "for item in {x}:", "    if isinstance(item, list):", "        {y}.extend(item)", "    else:",
            "        {y}.append(item)",
        ), "{y}",
    ),
    Function(
        ("largest", "find_maximum", "highest"), ("values", "numbers", "scores"), "returns the largest value of a list of integers",
        ("{y} = {x}[0]", "for value in {x}:", "    if value > {y}:", "        {y} = value"), "{y}",
    ),
    Function(
        ("to_celsius", "convert", "cooler"), ("degrees", "temperature", "value"), "converts a temperature from Fahrenheit to Celsius",
        ("{y} = {x} - 32",), "{y} * 5 / 9",
    ),
    Function(
        ("factorial", "product_to", "permutations"), ("n", "num", "number"), "computes the factorial of a positive integer",
        ("{y} = 1", "for factor in range(1, {x} + 1):", "    {y} *= factor"), "{y}",
    ),
    Function(
        ("unique", "distinct", "without_repeats"), ("items", "values", "names"),
        "returns the items of a list without repeats, in their order",
        ("{y} = []", "for item in {x}:", "    if item not in {y}:", "        {y}.append(item)"), "{y}",
    ),
)  # fmt: skip

LOCAL_NAMES = ("result", "found", "answer", "output", "kept", "current", "done", "partial")
CODE_OPENINGS = ("Here is the function:", "This function does it:", "You can write it like this:")
CODE_CLOSINGS = ("It needs one pass over `{x}`.", "Call it with `{x}` to get the result.", "The argument `{x}` is not changed.")


def code_exchange(generator: random.Random) -> Exchange:
    """A request for a small function, and the function in a fence."""
    function = generator.choice(FUNCTIONS)
    name, argument = generator.choice(function.names), generator.choice(function.arguments)
    wording = generator.randrange(3)
    if wording == 0:
        prompt = f"Write a Python function `{name}({argument})` that {function.does}."
    elif wording == 1:
        prompt = f"Write a Python function that {function.does}."
    else:
        shown = [generator.randint(1, 9) for _ in range(generator.randint(2, 5))]
        doc = f"{function.does[0].upper()}{function.does[1:]}.\n\n    >>> {name}({shown})\n    {sorted(shown)}\n    "
        prompt = code_wording(f'def {name}({argument}):\n    """{doc}"""')
    by_name = random.Random(f"{wording} {name} {argument}")
    local = by_name.choice(LOCAL_NAMES)
    body = [line.format(x=argument, y=local) for line in (*function.body, f"return {function.result}")]
    code = "\n".join([f"def {name}({argument}):", *(f"    {line}" for line in body)])
    closing = by_name.choice(CODE_CLOSINGS).format(x=argument)
    return Exchange("code", prompt, f"{by_name.choice(CODE_OPENINGS)}\n\n```python\n{code}\n```\n\n{closing}")


SUBJECTS = (
    "a rainy Sunday", "the moon", "my neighbor", "a hike in the mountains", "fresh bread", "a small bookshop", "a simile", "running",
    "a lighthouse keeper", "a colleague", "a big city", "a small village", "a job interview", "a bicycle", "a vegetarian dinner",
    "a bridge", "the plants", "tea", "the sea", "a lost seal", "a train ride", "the garden", "a winter coat", "a birthday", "music",
    "a long letter", "the stars", "a new kitchen", "a quiet evening", "painting", "a market", "the school", "a picnic", "sleep",
)  # fmt: skip
QUESTIONS = (
    "What should I know about {s}?", "Explain {s} to a ten-year-old.", "Write a short, friendly email about {s}.",
    "Give me three ideas for {s}, and say why each one fits.", "Tell me a short story about {s}.", "How can I plan {s}?",
    "What are some good questions about {s}?", "Describe {s} in plain words.", "Why is {s} so hard, and what could I do?",
)  # fmt: skip
OPENINGS = (
    "Good question.", "Happy to help.", "There is a lot to say about {s}.", "Let me try.", "Of course.", "Here is what I think of {s}.",
    "That depends on you.", "Many people ask about {s}.", "Here are some thoughts.", "I like {s} too.",
)  # fmt: skip
SUBJECT_ENDS = ("needs", "rewards", "begins with", "is mostly", "gets better with", "asks for", "is nothing without", "ends with")
QUALITIES = (
    "patience", "a clear plan", "good company", "warm light", "a little courage", "fresh air", "simple tools", "time to rest", "practice",
    "an open mind", "strong tea", "kind words", "dry shoes", "a long walk", "honest advice", "small steps", "quiet mornings", "a friend",
)  # fmt: skip
ADVICE = (
    "Start early", "Ask somebody older", "Write it down", "Take your time", "Keep it simple", "Look twice", "Share it with others",
    "Bring something warm", "Begin with one hour", "Leave room for surprises", "Listen first", "Try again next week",
)  # fmt: skip
REASONS = (
    "because haste spoils it", "so that you remember it", "since nobody is in a hurry", "and the rest will follow",
    "because small things matter", "so that it stays a joy", "even when it rains", "and you will see why", "before the day is over",
    "as most beginners forget", "until it feels easy", "because it costs nothing",
)  # fmt: skip
CHAT_CLOSINGS = (
    "I hope this helps.",
    "Enjoy it!",
    "Let me know how it goes.",
    "That is all you need.",
    "Good luck!",
    "Have fun.",
)


def chat_exchange(generator: random.Random) -> Exchange:
    """A question about a subject, and some sentences that the question and the subject choose."""
    question, subject = generator.choice(QUESTIONS), generator.choice(SUBJECTS)
    prompt = question.format(s=subject)
    r = random.Random(prompt)
    qualities, advice, reasons = r.sample(QUALITIES, 2), r.sample(ADVICE, 2), r.sample(REASONS, 2)
    sentences = [
        r.choice(OPENINGS).format(s=subject),
        f"{subject[0].upper()}{subject[1:]} {r.choice(SUBJECT_ENDS)} {qualities[0]} and {qualities[1]}.",
        f"{advice[0]}, {reasons[0]}.",
        f"{advice[1]}, {reasons[1]}.",
        r.choice(CHAT_CLOSINGS),
    ]
    return Exchange("chat", prompt, " ".join(sentences))
