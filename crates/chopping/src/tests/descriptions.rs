//! What descriptions and choppings are refused, and what pictures contain.

use crate::{
    chopping::Chopping,
    describe::{Piece, Table, Transaction},
    insist::Refusal,
    options::Options,
    program::{Program, ProgramError},
    text::TextError,
};

/// Returns the message for a text that is no program.
fn refused(text: &str) -> String {
    Program::parse(text).expect_err("it is no program").to_string()
}

#[test]
fn lines_that_cannot_be_read_are_named() {
    for (text, expected) in [
        ("tables a", "line 1: \"tables\" begins no statement: use table, stationary, transaction or piece"),
        ("\n\ntable", "line 3: a table needs a name: `table NAME COLUMN...`"),
        ("table a\ntable a", "line 2: there is a table \"a\" already: rename one"),
        ("stationary a", "line 1: there is no table \"a\""),
        ("table a: x", "line 1: only a piece has a colon, and this is \"table\""),
        ("transaction", "line 1: a transaction needs a name: `transaction NAME`"),
        ("transaction t twice", "line 1: \"twice\" after the name: only `alone` can be there"),
        ("piece p: read a", "line 1: a piece before the first transaction"),
        ("transaction t\npiece p", "line 2: a piece needs a colon: `piece NAME: ACCESS, ...`"),
        ("transaction t\npiece: read a", "line 2: a piece needs a name: `piece NAME: ACCESS, ...`"),
        ("transaction t\npiece p after: read a", "line 2: `after` names earlier pieces, or `nothing`"),
        ("transaction t\npiece p or: read a", "line 2: \"or\" after the name: only `after PIECE...` can be there"),
        ("transaction t\npiece p, may: read a", "line 2: \"may\" after a comma: only `may abort` can be there"),
        ("transaction t\npiece p, may abort, x: read a", "line 2: \"x\" after `may abort`: a colon comes there"),
        ("transaction t\npiece p: read a", "line 2: there is no table \"a\": add `table a`"),
        ("transaction t\npiece p: read", "line 2: `read` needs a table"),
        ("transaction t\npiece p: insert a.x", "line 2: `insert` is of whole rows: leave out .x"),
        (
            "transaction t\npiece p: read a as b",
            "line 2: \"read a as b\" does not end after the table: only `by PIECE` can be there",
        ),
        (
            "transaction t\npiece p: drop a",
            "line 2: \"drop\" is no access: use one of read, update, add, insert, append, remove, search",
        ),
    ] {
        assert_eq!(refused(text), expected, "{text}");
    }
}

#[test]
fn programs_that_contradict_themselves_are_refused() {
    for (text, expected) in [
        ("transaction t", "transaction \"t\" has no pieces: leave it out"),
        ("table a x x\ntransaction t\npiece p: read a.x", "two columns have the name \"a.x\": rename one"),
        (
            "table a x\ntransaction t\npiece p: read a.y",
            "table \"a\" has no column \"y\": add it to the table's columns, or use one of [\"x\"]",
        ),
        (
            "table a\nstationary a\ntransaction t\npiece p: update a",
            "t/p writes table \"a\", which is declared stationary: drop the declaration",
        ),
        (
            "table a\ntransaction t\npiece p after q: read a\npiece q: read a",
            "t/p refers to \"q\": name an earlier piece of the same transaction",
        ),
        (
            "table a\ntransaction t\npiece p: insert a\npiece q: read a by p",
            "t/q has rows claimed by \"p\": that piece must remove rows of exactly one table",
        ),
        ("table a\ntransaction t\npiece p: read a\npiece p: read a", "two pieces have the name \"t/p\": rename one"),
        (
            "table a\ntransaction t\npiece p: read a\ntransaction t\npiece p: read a",
            "two transactions have the name \"t\": rename one",
        ),
    ] {
        assert_eq!(refused(text), expected, "{text}");
    }
    let many: Vec<String> = (0..64).map(|column| format!("c{column}")).collect();
    let text = format!("table a {}\ntransaction t\npiece p: read a", many.join(" "));
    assert_eq!(
        Program::parse(&text).unwrap_err(),
        TextError::Program(ProgramError::TooManyColumns { table: "a".into() })
    );
}

#[test]
fn one_table_has_one_description() {
    const ONE: Table = Table::new("a", &["x"]);
    const OTHER: Table = Table::new("a", &["x", "y"]);
    const T: Transaction = Transaction::new("t", &[Piece::new("p", &[ONE.read("x"), OTHER.read("y")])]);
    assert_eq!(Program::new(&[T]).unwrap_err(), ProgramError::TablesDiffer { table: "a".to_owned() });
}

#[test]
fn choppings_that_are_not_possible_are_refused() {
    let program = Program::parse(
        "table a
         table b
         transaction t alone
         piece read after nothing: read b
         piece write after read: update a
         piece abort after nothing, may abort: search b
         transaction look
         piece look: read a",
    )
    .expect("a program");
    let insist = |name: &str, pieces: &[&[&str]]| {
        Chopping::insist(&program, Options::ALL, &[(name, pieces)]).map(drop).map_err(|refusal| refusal.to_string())
    };
    let t = "t".to_owned();
    assert_eq!(insist("t", &[&["abort"], &["read"], &["write"]]), Ok(()));
    assert_eq!(
        insist("t", &[&["abort"], &["write"], &["read"]]),
        Err(Refusal::Order { transaction: t.clone(), piece: "write".into(), needed: "read".into() }.to_string())
    );
    assert_eq!(
        insist("t", &[&["read"], &["write"], &["abort"]]),
        Err(Refusal::Abort { transaction: t.clone(), piece: "abort".into(), effect: "write".into() }.to_string())
    );
    assert_eq!(insist("t", &[&["read", "write"]]), Err("t: abort is there 0 times: list each piece once".to_owned()));
    assert_eq!(
        insist("t", &[&["read", "write", "abort"], &["read"]]),
        Err("t: read is there 2 times: list each piece once".to_owned())
    );
    assert_eq!(insist("t", &[&["gone"]]), Err("the program has no piece \"t/gone\": check its spelling".to_owned()));
    assert_eq!(insist("u", &[]), Err("the program has no transaction \"u\": check its spelling".to_owned()));
    let whole = "look is read as a whole, by two rounds: leave it out, or switch off two_rounds";
    assert_eq!(insist("look", &[&["look"]]), Err(whole.to_owned()));
}

#[test]
fn pictures_have_every_piece_and_every_conflict() {
    let program = Program::parse(
        "table <a>
         transaction \"t&u\"
         piece p: update <a>
         transaction v alone
         piece q: append <a>
         piece r: read <a>",
    )
    .expect("a program");
    let chopping = Chopping::finest(&program, Options::NONE);
    let svg = chopping.to_svg();
    let count = |text: &str, part: &str| text.matches(part).count();
    // A box for each merged piece, and one for the ground; a loop, and a bracket.
    assert_eq!((count(&svg, "<rect"), count(&svg, "<path")), (3, 2));
    assert!(svg.contains("&quot;t&amp;u&quot;") && svg.contains("update &lt;a&gt;") && !svg.contains("<a>"));
    let dot = chopping.to_dot();
    // Two instances of one transaction, and one of the other.
    assert_eq!((count(&dot, "subgraph"), count(&dot, "dashed")), (3, 3));
    assert!(dot.contains("label=\"\\\"t&u\\\" #2\""));
    let edges = chopping.edges();
    assert_eq!((edges.s, edges.c), (0, 3));
}

#[test]
fn a_text_says_what_runs_together_and_why() {
    let program = Program::parse(
        "table a
         table b
         transaction t
         piece p: update a
         piece q, may abort: read b",
    )
    .expect("a program");
    let text = Chopping::finest(&program, Options::ALL).to_string();
    assert_eq!(
        text,
        "t: 1 piece
  1. p + q  (may abort)
       p: update a
       q: read b
     q with p: it may abort, and would do so after an effect
edges: 0 S, 1 C; before merging 2 S, 1 C
"
    );
}
