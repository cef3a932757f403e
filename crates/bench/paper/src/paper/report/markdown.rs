//! The published values and ours as a table of Markdown, between two marks of a file.

use super::{Shown, known};

const BEGIN: &str = "<!-- made by `drtm-bench report --markdown`: what is between the marks is replaced -->";
const END: &str = "<!-- end of what is made -->";

/// Returns a text in which what is between the marks is replaced.
pub(super) fn between_marks(text: &str, made: &str) -> Result<String, String> {
    let missing = |mark| format!("it has no line {mark}");
    let (before, rest) = text.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| missing(END))?;
    Ok(format!("{before}{BEGIN}\n\n{made}\n{END}{after}"))
}

/// Returns the table, and the causes of what is off.
pub(super) fn table(shown: &[Shown<'_>]) -> String {
    let mut text = "| figure | what | published | ours | verdict |\n|---|---|---|---|---|\n".to_owned();
    for Shown { panel, comparisons, .. } in shown {
        for comparison in comparisons {
            let ours = match &comparison.ours {
                Ok(ours) => ours.clone(),
                Err(why) => why.clone(),
            };
            let cells = [&comparison.what, &comparison.published, &ours].map(|text| text.replace('|', "\\|"));
            text += &format!("| `{}` | {} | {} |\n", panel.name, cells.join(" | "), comparison.verdict.name());
        }
    }
    let causes = shown.iter().filter(|shown| shown.verdict.is_bad());
    let told = causes.map(|shown| {
        let cause = known(shown.panel.name).cause;
        let cause = if cause.is_empty() { "Not known." } else { cause };
        wrapped(&format!("`{}`: {cause}", shown.panel.name))
    });
    let told: Vec<String> = told.collect();
    if !told.is_empty() {
        text += &format!("\nWhat is off, or in the published order only, and why:\n\n{}", told.concat());
    }
    text
}

/// Returns an item of a list, in lines of at most a hundred characters.
fn wrapped(text: &str) -> String {
    let (mut item, mut length) = ("-".to_owned(), 1);
    for word in text.split_whitespace() {
        let needed = word.chars().count() + 1;
        if length + needed > 100 {
            item += "\n ";
            length = 1;
        }
        item += &format!(" {word}");
        length += needed;
    }
    item + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let made = between_marks(&text, "new\n").expect("marks");
        assert_eq!(made, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(between_marks(&made, "new\n").expect("marks"), made);
        assert!(between_marks("none", "new").is_err() && between_marks(BEGIN, "new").is_err());
    }

    #[test]
    fn an_item_is_as_wide_as_a_page() {
        let item = wrapped(&"word ".repeat(50));
        assert!(item.lines().all(|line| line.len() <= 100) && item.lines().skip(1).all(|line| line.starts_with("  ")));
    }
}
