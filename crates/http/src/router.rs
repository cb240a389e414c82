//! Finds the row of a table of routes that a request is for.

use hyper::Method;

/// A row of a table: a method, a path, and what the two name. A segment of the path may be a variable part in braces, with a
/// fixed ending: `/plots/{name}.svg`.
pub type Row<R> = (Method, &'static str, R);

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'p, R> {
    /// A route, and the variable parts of the request's path, in order. They are neither decoded nor checked.
    Route(R, Vec<&'p str>),
    /// The path has other methods only: the value of the header `Allow`.
    OtherMethods(String),
    /// There is no such path.
    Nothing,
}

/// Finds the route of a request. A request with the method `HEAD` is for the route of `GET`.
pub fn find<'p, R: Copy>(table: &[Row<R>], method: &Method, path: &'p str) -> Found<'p, R> {
    let wanted = if *method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    let mut others = Vec::new();
    for (known, template, route) in table {
        let Some(parts) = parts(template, path) else {
            continue;
        };
        if known == wanted {
            return Found::Route(*route, parts);
        }
        others.push(if *known == Method::GET {
            "GET, HEAD"
        } else {
            known.as_str()
        });
    }
    if others.is_empty() {
        Found::Nothing
    } else {
        Found::OtherMethods(others.join(", "))
    }
}

/// The variable parts of a path; `None` if it is not of this template.
fn parts<'p>(template: &str, path: &'p str) -> Option<Vec<&'p str>> {
    let mut parts = Vec::new();
    let (mut templates, mut segments) = (template.split('/'), path.split('/'));
    loop {
        let (template, segment) = match (templates.next(), segments.next()) {
            (Some(template), Some(segment)) => (template, segment),
            (None, None) => return Some(parts),
            _ => return None,
        };
        let variable = template.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        match variable {
            Some((_, ending)) => parts.push(segment.strip_suffix(ending)?),
            None if template == segment => {}
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [Row<u32>; 5] = [
        (Method::GET, "/tests", 1),
        (Method::POST, "/tests", 2),
        (Method::GET, "/tests/{id}", 3),
        (Method::DELETE, "/tests/{id}", 4),
        (Method::GET, "/tests/{id}/plots/{plot}.svg", 5),
    ];

    #[test]
    fn a_request_is_for_the_row_with_its_method_and_path() {
        assert_eq!(find(&TABLE, &Method::POST, "/tests"), Found::Route(2, vec![]));
        assert_eq!(find(&TABLE, &Method::HEAD, "/tests"), Found::Route(1, vec![]));
        assert_eq!(
            find(&TABLE, &Method::GET, "/tests/7/plots/a.b.svg"),
            Found::Route(5, vec!["7", "a.b"])
        );
        assert_eq!(
            find(&TABLE, &Method::PUT, "/tests/7"),
            Found::OtherMethods("GET, HEAD, DELETE".to_owned())
        );
        for path in ["", "/", "/tests/", "/tests/7/", "/tests/7/plots/a", "tests"] {
            let found = find(&TABLE, &Method::PUT, path);
            assert!(found == Found::Nothing || path == "/tests/", "{path}: {found:?}");
        }
    }
}
