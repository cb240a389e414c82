//! sqm.conf(5), made from the reference of options, which is made from the registry of options.

use super::roff::{Page, escape};

/// The manual page of the configuration file.
pub(super) fn page() -> String {
    let mut page = Page::new("sqm.conf", 5);
    page.section("Name");
    page.line("sqm.conf \\- configuration of sqm(8), /etc/config/sqm");
    page.section("Description");
    page.paragraph(DESCRIPTION);
    page.section("Examples");
    page.verbatim(EXAMPLE.lines());
    let reference = sqm_plan::options::reference();
    // The introduction of the reference is about its own making.
    let options = reference.split_once("\n## ").map_or("", |(_, options)| options);
    for group in options.split("\n## ") {
        let (title, text) = group.split_once('\n').unwrap_or((group, ""));
        page.section(title);
        text.lines().for_each(|line| convert(&mut page, line));
    }
    page.section("Files");
    page.entry("\\fI/etc/config/sqm\\fR", "The configuration.");
    page.section("See also");
    page.line("\\fBsqm\\fR(8),\n\\fBsqm\\-setup\\fR(8),\n\\fBsqm\\-import\\fR(8),\n\\fBsqm\\-plan\\fR(8),\n\\fBtc\\-cake\\fR(8)");
    page.finish()
}

const DESCRIPTION: &str = "\
The file has the format of OpenWrt's sqm-scripts: one 'config queue' section for each interface, with one option in a line.
A line that begins with # is a comment. An option with an empty value counts as not given.

A switch is 1 or 0; on, true, yes, enabled and their opposites are read, too. A rate has a unit, such as 85mbit or 500kbit;
a bare number is kbit/s; 0 leaves the direction unshaped. A time is written 5ms, 100us or 1s; a size 4mb; a mask 0xff.

An option without effect is reported with its reason by 'sqm plan'. An unknown option is a warning that names the option that
was probably meant.";

const EXAMPLE: &str = "\
config queue 'wan'
        option enabled '1'
        option interface 'eth0'
        option download '85mbit'
        option upload '10mbit'
        option script 'best_of_cake.qos'
        option link 'docsis'";

/// Converts a line of the reference, which is Markdown.
fn convert(page: &mut Page, line: &str) {
    if let Some(names) = line.strip_prefix("### ") {
        page.subsection(&plain(names));
    } else if let Some(item) = line.strip_prefix("- ") {
        page.line(".br");
        page.line(&escape(&plain(item)));
    } else if let Some(row) = line.strip_prefix("| ") {
        let (word, meaning) = row.trim_end_matches(" |").split_once(" | ").unwrap_or((row, ""));
        if !matches!(word, "Word" | "---") {
            page.line(".br");
            page.line(&format!(
                "\\fB{}\\fR: {}",
                escape(&plain(word)),
                escape(&plain(meaning))
            ));
        }
    } else if !line.is_empty() && !line.contains("](") {
        // A paragraph with a link speaks of other files of the documentation.
        page.paragraph(&plain(line));
    }
}

/// Markdown without the marks of code and of bold text.
fn plain(text: &str) -> String {
    text.replace("**", "").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marks_of_markdown_are_left_out() {
        assert_eq!(plain("**A.** Set `b` to `c`"), "A. Set b to c");
    }
}
