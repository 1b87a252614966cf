//! What components in JavaScript and Python start from, run by Node and by Python themselves with plugins that answer wrongly. A
//! language that is not here is said so and passed over.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something it needs is missing"
)]

use std::process::Command;

/// What a program prints, line by line, that is given these files and starts from the last.
fn says(program: &str, files: &[(&str, &str)]) -> Option<Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let (main, _) = files.last()?;
    let Ok(output) = Command::new(program).current_dir(&dir).arg(main).output() else {
        eprintln!("passed over: {program} is not here");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    Some(text.lines().map(str::to_owned).collect())
}

fn agree(said: &[String], wanted: &[&str]) {
    assert_eq!(said.len(), wanted.len(), "{said:?}");
    for (said, wanted) in said.iter().zip(wanted) {
        assert!(
            said.starts_with(wanted),
            "`{said}` does not start with `{wanted}`"
        );
    }
}

#[test]
fn an_answer_in_javascript_that_is_none_is_told() {
    let app = r"
        const right = { contentType: 'text/plain', metadata: [['a', 'b']], body: new Uint8Array(2) };
        const thrown = (error) => () => { throw error; };
        export const cases = [
            () => right,
            async () => ({ ...right, body: new Uint8Array(2).buffer }),
            () => ({ ...right, body: 'text' }),
            () => ({ ...right, body: [1, 2] }),
            () => ({ ...right, contentType: undefined }),
            () => ({ ...right, metadata: { a: 'b' } }),
            () => ({ a: 1 }),
            () => new Uint8Array(2),
            () => undefined,
            thrown({ tag: 'failed', val: 'no page 7' }),
            thrown({ tag: 'invalid', val: { message: 'no name' } }),
            thrown({ tag: 'invalid', val: { message: 'no name', field: 3 } }),
            thrown({ tag: 'invalid', val: 'no name' }),
            thrown({ tag: 'oops', val: 'no name' }),
            thrown(new TypeError('x is no function')),
            thrown('out of memory'),
            thrown(undefined),
        ];
        export const handler = { handle: (number) => cases[number]() };
    ";
    let main = r"
        import { cases, handler } from './build/entry.js';
        for (const number of cases.keys()) {
            const told = (error) => `${error.tag}: ${error.val.message ?? error.val.split('\n')[0]}`;
            console.log(await handler.handle(number).then(() => 'answered', told));
        }
    ";
    let said = says(
        "node",
        &[
            ("package.json", r#"{ "type": "module" }"#),
            ("app.js", app),
            ("build/entry.js", include_str!("../src/js/entry.js")),
            ("main.js", main),
        ],
    );
    let wanted = [
        "answered",
        "answered",
        "internal: `body` is a string; use new TextEncoder().encode(…)",
        "internal: `body` is of type Array;",
        "internal: `contentType` is of type undefined;",
        "internal: `metadata` is no array",
        "internal: `handle` returned Object;",
        "internal: `handle` returned Uint8Array;",
        "internal: `handle` returned undefined;",
        "failed: no page 7",
        "invalid: no name",
        "internal: { tag: 'invalid' } is no error: `val` has to be { message, field }",
        "internal: { tag: 'invalid' } is no error: `val` has to be { message, field }",
        "internal: { tag: 'oops' } is no error",
        "internal: TypeError: x is no function",
        "limit: out of memory",
        "internal: undefined",
    ];
    said.inspect(|said| agree(said, &wanted));
}

#[test]
fn an_answer_in_python_that_is_none_is_told() {
    let types = "from dataclasses import dataclass\n\n\
        @dataclass\nclass Response:\n    content_type: str\n    metadata: list\n    body: bytes\n\n\
        @dataclass\nclass Error_Internal:\n    value: str\n\n@dataclass\nclass Error_Limit:\n    value: str\n";
    let app = r#"
from wit_world.imports.types import Response

def no_memory():
    raise MemoryError("no room")

def no_number():
    raise ValueError("no number")

CASES = [
    lambda: Response("text/plain", [("a", "b")], b"text"),
    lambda: Response("text/plain", [], "text"),
    lambda: Response(None, [], b"text"),
    lambda: Response("text/plain", {"a": "b"}, b"text"),
    lambda: {"a": 1},
    no_memory,
    no_number,
]

class Handler:
    def handle(self, number):
        return CASES[number]()
"#;
    let main = r#"
from karman_entry import CASES, Err, Handler

for number in range(len(CASES)):
    try:
        Handler().handle(number)
        print("answered")
    except Err as error:
        print(f"{type(error.value).__name__}: {error.value.value.splitlines()[0]}")
"#;
    let said = says(
        "python3",
        &[
            (
                "componentize_py_types.py",
                "class Err(Exception):\n    def __init__(self, value):\n        self.value = value\n",
            ),
            ("wit_world/imports/types.py", types),
            ("app.py", app),
            ("karman_entry.py", include_str!("../src/python/entry.py")),
            ("main.py", main),
        ],
    );
    let wanted = [
        "answered",
        "Error_Internal: `body` is of type str;",
        "Error_Internal: `content_type` is of type NoneType;",
        "Error_Internal: `metadata` is no list",
        "Error_Internal: `handle` returned dict;",
        "Error_Limit: MemoryError: no room",
        "Error_Internal: ValueError: no number",
    ];
    said.inspect(|said| agree(said, &wanted));
}
