//! How wide comments and Markdown are.
//!
//! Tables, headings, code in fences, and single words that are longer, such as links, can be wider.

/// The most characters of a line.
const WIDTH: usize = 100;

/// Returns the numbers of the lines that are too wide, from 1 on.
pub(crate) fn too_wide(text: &str, is_markdown: bool) -> Vec<usize> {
    let mut is_code = false;
    let is_too_wide = |line: &str| {
        let start = line.trim_start();
        let comment = ["///", "//!", "//"].iter().find_map(|mark| start.strip_prefix(mark));
        let Some(prose) = (if is_markdown { Some(start) } else { comment.map(str::trim_start) }) else {
            is_code = false;
            return false;
        };
        if prose.starts_with("```") {
            is_code = !is_code;
        }
        let is_free = is_code || prose.starts_with(['|', '#']) || !prose.trim_end().contains(' ');
        !is_free && line.chars().count() > WIDTH
    };
    (1..).zip(text.lines().map(is_too_wide)).filter_map(|(number, is_wide)| is_wide.then_some(number)).collect()
}

#[cfg(test)]
mod tests {
    use super::too_wide;

    #[test]
    fn prose_is_measured_and_nothing_else() {
        let (wide, narrow) = ("word ".repeat(20) + "x", "word ".repeat(19));
        assert_eq!(too_wide(&format!("{narrow}\n{wide}\n- {wide}\n| {wide} |\n# {wide}\n"), true), [2, 3]);
        assert_eq!(too_wide(&format!("```text\n{wide}\n```\n{wide}\n{}", "x".repeat(120)), true), [4]);
        let code = format!("fn a() {{}} // {wide}\n    //! {wide}\n/// ```\n/// {wide}\n/// ```\n// {wide}");
        assert_eq!(too_wide(&code, false), [2, 6]);
        assert_eq!(too_wide(&format!("/// ```\nfn a() {{}}\n/// {wide}"), false), [3], "a fence ends with its comment");
    }
}
