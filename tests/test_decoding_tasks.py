"""Prompts: the ones that ship, and those of files in the layouts people have."""

import gzip
import json

import pytest
from decoding_pairs import small_pair
from tokenizers import Tokenizer, models, pre_tokenizers

from decoding.pair import ASSETS
from decoding.prompts import TASKS, read_prompts
from decoding.tasks import load_prompts
from perfmodel.errors import InputError

BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{}."
STUB = "def f(x):\n    '''Double x.'''\n"
FENCED = f"Write a solution to the following problem and make sure that it passes the tests:\n```python\n{STUB}\n```"


def write(folder, *rows, name="prompts.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("row", "task", "text"),
    [
        ({"question": "2 + 2?", "answer": "#### 4"}, "math", "2 + 2?" + BOXED),
        ({"problem": "Find x.", "solution": "1", "unique_id": "a"}, "math", "Find x." + BOXED),
        ({"id": 60, "problem": "Find y.", "answer": "204"}, "math", "Find y." + BOXED),
        ({"task_id": "HumanEval/0", "prompt": STUB, "entry_point": "f", "test": ""}, "code", FENCED),
        ({"text": "Write f.", "task_id": 11, "test_list": ["assert f(1) == 2"], "code": ""}, "code", "Write f."),
        ({"prompt": "Write f.", "task_id": 11, "test_list": ["assert f(1) == 2"]}, "code", "Write f."),
        ({"question_id": 81, "turns": ["First.", "Second."]}, "chat", "First."),
        ({"prompt_id": 1, "prompt": ["First.", "Second."], "category": "writing"}, "chat", "First."),
        ({"instruction": "Sort.", "input": "3 1 2", "output": "1 2 3"}, "chat", "Sort.\n\nInput:\n3 1 2"),
        ({"instruction": "Greet.", "input": "", "output": "Hi"}, "chat", "Greet."),
        ({"instruction": "Sort.", "instances": [{"input": "3 1", "output": "1 3"}]}, "chat", "Sort.\n\nInput:\n3 1"),
        (
            {"instance_id": "a__b-1", "problem_statement": "It crashes.", "repo": "a/b"},
            "code",
            "Problem Statement:\nIt crashes.\nPlease fix the issue described above.",
        ),
        ({"prompt": "Hello."}, None, "Hello."),
        ({"task": "math", "id": "m1", "prompt": "Hello."}, "math", "Hello."),
    ],
)
def test_every_layout_gets_its_benchmark_wording(tmp_path, row, task, text):
    (prompt,) = read_prompts(write(tmp_path, row))
    assert prompt.messages == ({"role": "user", "content": text},)
    assert prompt.task == task


def test_conversations_keep_their_turns_but_not_the_recorded_answer(tmp_path):
    turns = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Bye"), ("assistant", "Ciao")]
    messages = [{"role": role, "content": content} for role, content in turns]
    (prompt,) = read_prompts(write(tmp_path, {"messages": messages}))
    assert list(prompt.messages) == messages[:-1]


def test_ids_come_from_the_row_or_its_line(tmp_path):
    prompts = read_prompts(write(tmp_path, {"prompt": "a", "id": "x"}, {"question": "b", "question_id": 7}, {"prompt": "c"}))
    assert [prompt.id for prompt in prompts] == ["x", "7", "3"]


def test_reads_arrays_gzip_blank_lines_and_a_byte_order_mark(tmp_path):
    rows = [{"prompt": "a"}, {"prompt": "b"}]
    array = tmp_path / "rows.json"
    array.write_text(json.dumps(rows, indent=1))
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress(b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n{"prompt": "b"}\r\n'))
    for path in (array, packed):
        assert [prompt.messages[0]["content"] for prompt in read_prompts(path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"prompt": "a"}\n\n{"prompt": ', "line 3: not JSON"),
        ("a.json", b'[{"prompt": "a"},\n {"prompt": }]', "line 2: not JSON"),
        ("a.jsonl", b'{"prompt": "a"}\n{"text": "b", "label": 1}\n', "line 2: no known layout has the keys label, text"),
        ("a.json", b'[{"prompt": "a"}, {}]', r"entry 2: no known layout has the keys \(none\)"),
        ("a.jsonl", b'{"prompt": "a"}\n"b"\n', "line 2: not a JSON object"),
        ("a.jsonl", b'{"prompt": "  "}', "line 1: the plain row asks nothing"),
        ("a.jsonl", b'{"prompt": 5}', "line 1: the plain row asks nothing"),
        ("a.jsonl", b'{"prompt": "\\ud800"}', "line 1: half a surrogate pair"),
        ("a.jsonl", b'{"turns": []}', "line 1: a damaged row of the MT-Bench layout"),
        ("a.jsonl", b'{"messages": [{"role": "user"}]}', "line 1: a damaged row of the messages layout"),
        ("a.jsonl", b'{"messages": [{"role": "assistant", "content": "x"}]}', "asks nothing"),
        ("a.jsonl", b'{"prompt": "a", "task": "poetry"}', "line 1: task 'poetry'"),
        ("a.jsonl", b"", "holds no prompts"),
        ("a.json", b"[]", "holds no prompts"),
        ("a.jsonl.gz", b'{"prompt": "a"}', "not a gzip file"),
        ("a.jsonl.gz", gzip.compress(b'{"prompt": "a"}' * 50, mtime=0)[:-9], "damaged gzip"),
        ("a.jsonl", b'{"prompt": "a"}\n{"prompt": "\xff"}', "line 2: not UTF-8"),
        pytest.param("a.json", b"[" * 100_000, "cannot be read", id="too deep"),
        pytest.param("a.jsonl", b'{"prompt": ' + b"1" * 5000 + b"}", "cannot be read", id="too many digits"),
    ],
)
def test_unreadable_files_are_refused_with_the_place(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_prompts(path)
    assert caught.value.hint
    assert name in caught.value.message


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_prompts(tmp_path / "none.jsonl")


@pytest.mark.parametrize("task", TASKS)
def test_prompts_that_ship_are_many_and_distinct(task):
    prompts = read_prompts(ASSETS / "prompts" / f"{task}.jsonl")
    assert len(prompts) >= 14
    assert {prompt.task for prompt in prompts} == {task}
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert len({prompt.messages[0]["content"] for prompt in prompts}) == len(prompts)
    assert all(prompt.messages[0]["content"].endswith(BOXED) == (task == "math") for prompt in prompts)


@pytest.mark.parametrize(
    ("file", "num_rows", "task"),
    [("gsm8k_test.jsonl", 1319, "math"), ("math500.json", 500, "math"), ("humaneval.jsonl.gz", 164, "code"),
     ("mbpp.jsonl", 974, "code"), ("mt_bench.jsonl", 80, "chat"), ("self_instruct_seed_tasks.jsonl", 175, "chat")],
)  # fmt: skip
def test_real_benchmark_files_are_read_whole(shared_data, file, num_rows, task):
    prompts = read_prompts(shared_data / "prompts" / file)
    assert len(prompts) == num_rows
    assert {prompt.task for prompt in prompts} == {task}


@pytest.fixture
def pair(tmp_path):
    """A pair whose tokenizer knows words and whose template marks turns and thinking."""
    words = ["[UNK]", "<user>", "<answer>", "<think>", "one", "two", "three"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    (tmp_path / "chat_template.jinja").write_text(
        "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}<answer>{% if enable_thinking %} <think>{% endif %}"
    )
    return small_pair(0, tokenizer=tokenizer, target_folder=tmp_path)


def test_prompts_become_token_ids_through_the_chat_template(tmp_path, pair):
    path = write(tmp_path, {"prompt": "two one"})
    (prompt,) = load_prompts("chat", pair, 5, path)
    assert prompt.text == "<user> two one <answer>"
    assert prompt.token_ids == (1, 5, 4, 2)
    assert (prompt.task, prompt.id) == ("chat", "1")


def test_a_file_gives_its_rows_of_the_task_in_the_references_order(tmp_path, pair):
    rows = [{"task": "math", "id": f"m{i}", "prompt": "one"} for i in range(5)]
    path = write(tmp_path, *rows, {"task": "code", "id": "c", "prompt": "two"})
    # random.Random(42).shuffle([0, 1, 2, 3, 4]) gives 3, 1, 2, 4, 0
    assert [prompt.id for prompt in load_prompts("math", pair, 9, path)] == ["m3", "m1", "m2", "m4", "m0"]
    assert [prompt.id for prompt in load_prompts("math", pair, 2, path)] == ["m3", "m1"]
    with pytest.raises(InputError, match="holds no chat prompts, only code, math"):
        load_prompts("chat", pair, 2, path)


def test_shipped_prompts_are_taken_in_order(pair):
    assert [prompt.id for prompt in load_prompts("code", pair, 3)] == ["code-01", "code-02", "code-03"]


def test_refuses_unknown_tasks_and_targets_without_a_tokenizer():
    with pytest.raises(InputError, match="no task named 'prose'"):
        load_prompts("prose", small_pair(0), 1)
    with pytest.raises(InputError, match="has no tokenizer"):
        load_prompts("chat", small_pair(0), 1)
