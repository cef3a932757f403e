//! Chops a program from a file: `cargo run -p drtm-chopping --example chop -- FILE [--default]
//! [--svg|--dot]`.

use std::{env, error::Error, fs};

use drtm_chopping::{Chopping, Options, Program};

fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args().nth(1).ok_or("the name of a file is missing: see Program::parse for what it contains")?;
    let has = |option: &str| env::args().any(|argument| argument == option);
    let options = if has("--default") { Options::NONE } else { Options::ALL };
    let program = Program::parse(&fs::read_to_string(file)?)?;
    let chopping = Chopping::finest(&program, options);
    if has("--svg") {
        print!("{}", chopping.to_svg());
    } else if has("--dot") {
        print!("{}", chopping.to_dot());
    } else {
        print!("{chopping}");
    }
    Ok(())
}
