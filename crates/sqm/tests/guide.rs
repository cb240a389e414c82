//! The guide shows what the program prints. Commands that need a line run in the virtual home network, at night (`nightly/guide.rs`).

#[path = "support/guide.rs"]
mod guide;

use std::fs;
use std::process::Command;

#[test]
fn each_page_is_in_the_contents_in_this_order() {
    let contents = fs::read_to_string(guide::folder().join("README.md")).expect("the contents");
    let places = guide::PAGES.map(|page| contents.find(&format!("]({page}.md)")).expect(page));
    assert!(places.is_sorted(), "{places:?}");
    for entry in fs::read_dir(guide::folder()).expect("the guide") {
        let name = entry.expect("an entry").file_name().into_string().expect("text");
        let page = name.strip_suffix(".md").filter(|page| *page != "README");
        assert!(
            page.is_none_or(|page| guide::PAGES.contains(&page)),
            "{name} is no page of the walk"
        );
    }
}

#[test]
fn each_output_of_the_guide_is_run_by_a_test() {
    for block in guide::blocks() {
        let shows_output = block.commands.iter().any(|(_, output)| !output.trim().is_empty());
        assert!(
            block.place.is_some() || !shows_output,
            "{}: no line <!-- run: PLACE --> before the block of: sqm {}",
            block.page.display(),
            block.commands[0].0
        );
    }
}

/// Commands that need no line print exactly what the guide shows.
#[test]
fn the_guide_shows_what_commands_print_here() {
    let mut count = 0;
    for block in guide::blocks() {
        if block.place.as_deref() != Some("here") {
            continue;
        }
        for (command, shown) in &block.commands {
            let mut sqm = Command::new(env!("CARGO_BIN_EXE_sqm"));
            let output = sqm.args(command.split_whitespace()).output().expect("sqm runs");
            let printed = String::from_utf8(output.stdout).expect("text");
            assert_eq!(
                printed.trim_end(),
                shown.trim_end(),
                "{}: sqm {command}",
                block.page.display()
            );
            count += 1;
        }
    }
    assert!(count >= 5, "{count} commands");
}

#[test]
fn figures_are_no_part_of_what_is_compared() {
    let plain = guide::without_figures;
    assert_eq!(plain("a  12.5 ms\n  b 7 %\n"), "a # ms\nb # %");
    assert_eq!(plain("lost  0"), plain("lost 12"));
    assert_ne!(plain("lost 0"), plain("losses 0"));
}
