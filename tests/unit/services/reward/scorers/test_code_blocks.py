import pytest

from headrace.services.reward.scorers.code.blocks import find_program


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("print(1)", "print(1)"),
        ("So:\n```python\nprint(1)\n```\nDone.", "print(1)"),
        ("```python\nold\n```\nBetter:\n```py\nnew\n```", "new"),
        ("```python\ncode\n```\nIt prints:\n```\n42\n```", "code"),
        ("```python\ncode\n```\n```bash\nrun it\n```", "code"),
        ("```\nbare\n```\n```text\nother\n```", "bare"),
        ("```cpp\nint x;\n```", ""),
        ("```python\ncut off", "cut off"),
        ("1. Step\n   ```Python\n   x = 1\n   ```", "   x = 1"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''"),
        ("~~~python\nx\n~~~", "x"),
        ("Use ```inline``` code", "Use ```inline``` code"),
        ("```python title=a\nx\n```", "x"),
        ("```python3.11\nx\n```\n```\n42\n```", "x"),
        ("```python:main.py\nx\n```\n```\n42\n```", "x"),
        ("```python{1,3}\nx\n```\n```\n42\n```", "x"),
        ("```pycon\n>>> 1\n```\n```\nx\n```", "x"),
        ("```python\ns = 'a\u2028b\x85\x0cc'\n```", "s = 'a\u2028b\x85\x0cc'"),
        ("", ""),
    ],
)
def test_the_last_python_block_is_the_program(text, program):
    assert find_program(text) == program
