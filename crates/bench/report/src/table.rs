//! Text tables.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

/// A line under the header, and no lines between the numbers.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Characters in a line of prose.
const WIDTH: usize = 100;

/// Formats a table. The first `labels` columns hold words; the rest hold numbers, aligned to the
/// right.
pub fn table(headers: &[&str], labels: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(headers).add_rows(rows);
    for column in table.column_iter_mut().skip(labels) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// Wraps prose under a table at spaces.
pub fn prose(text: &str) -> String {
    wrap(text, WIDTH)
}

/// Wraps text at spaces, into lines of at most so many characters. A longer word has its own line.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let separator = match length {
            0 => "",
            _ if length + 1 + word.chars().count() > width => {
                length = 0;
                "\n"
            }
            _ => {
                length += 1;
                " "
            }
        };
        length += word.chars().count();
        lines.push_str(separator);
        lines.push_str(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_left_and_numbers_right() {
        let shown = table(&["name", "count"], 1, [vec!["a".to_owned(), "7".to_owned()]]);
        let last = shown.lines().last().expect("a row");
        assert_eq!(last, " a          7", "{shown}");
    }

    #[test]
    fn prose_keeps_its_words_and_its_width() {
        let text = "five  words\n".repeat(30);
        let broken = prose(&text);
        assert!(broken.lines().count() > 1 && broken.lines().all(|line| line.len() <= WIDTH), "{broken}");
        assert!(broken.split_whitespace().eq(text.split_whitespace()));
    }
}
