//! The statements of a shell script: commands, `if`, `case`, `&&`, `||`, and functions.

use std::collections::BTreeMap;

use sqm_core::units::shortened;

use super::lexer::{Kind, Token, Wrong};

/// Deepest nesting of statements, a choice that keeps the stack small.
const DEEPEST: usize = 40;

/// A statement.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Command {
        line: usize,
        words: Vec<String>,
    },
    If {
        line: usize,
        condition: Box<Self>,
        then: Vec<Self>,
        otherwise: Vec<Self>,
    },
    Case {
        line: usize,
        word: String,
        arms: Vec<(Vec<String>, Vec<Self>)>,
    },
    /// `{ …; }`
    Group {
        line: usize,
        nodes: Vec<Self>,
    },
    /// `first && then`, or `first || then`.
    AndOr {
        first: Box<Self>,
        is_and: bool,
        then: Box<Self>,
    },
}

/// A script: its functions, and the statements outside of them.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) functions: BTreeMap<String, (usize, Vec<Node>)>,
    pub(super) statements: Vec<Node>,
}

pub(super) fn parse(tokens: Vec<Token>) -> Result<Script, Wrong> {
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
        functions: BTreeMap::new(),
    };
    let statements = parser.list(&[])?;
    match parser.tokens.get(parser.at) {
        Some(token) => Err((token.line, format!("{} is not expected here", shown(&token.kind)))),
        None => Ok(Script {
            functions: parser.functions,
            statements,
        }),
    }
}

fn shown(kind: &Kind) -> String {
    match kind {
        Kind::Word(word) => format!("'{}'", shortened(word)),
        Kind::End => "the end of the line".to_owned(),
        Kind::EndOfArm => "';;'".to_owned(),
        Kind::And => "'&&'".to_owned(),
        Kind::Or => "'||'".to_owned(),
        Kind::Pipe => "'|'".to_owned(),
        Kind::Open => "'('".to_owned(),
        Kind::Close => "')'".to_owned(),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    functions: BTreeMap<String, (usize, Vec<Node>)>,
}

impl Parser {
    fn kind(&self, ahead: usize) -> Option<&Kind> {
        self.tokens.get(self.at + ahead).map(|token| &token.kind)
    }

    fn line(&self) -> usize {
        let last = self.tokens.last();
        self.tokens.get(self.at).or(last).map_or(1, |token| token.line)
    }

    fn is_word(&self, text: &str) -> bool {
        matches!(self.kind(0), Some(Kind::Word(word)) if word == text)
    }

    fn expect(&mut self, text: &str) -> Result<(), Wrong> {
        self.skip_ends();
        if !self.is_word(text) {
            let found = self
                .kind(0)
                .map_or_else(|| "the end of the script".to_owned(), shown);
            return Err((self.line(), format!("'{text}' is expected, not {found}")));
        }
        self.at += 1;
        Ok(())
    }

    fn skip_ends(&mut self) {
        while self.kind(0) == Some(&Kind::End) {
            self.at += 1;
        }
    }

    fn deeper(&mut self) -> Result<(), Wrong> {
        self.depth += 1;
        match self.depth > DEEPEST {
            true => Err((
                self.line(),
                format!("more than {DEEPEST} statements within each other"),
            )),
            false => Ok(()),
        }
    }

    /// Statements up to one of these words, or `;;`, or the end.
    fn list(&mut self, ends: &[&str]) -> Result<Vec<Node>, Wrong> {
        self.deeper()?;
        let mut nodes = Vec::new();
        loop {
            self.skip_ends();
            match self.kind(0) {
                None | Some(Kind::EndOfArm) => break,
                Some(Kind::Word(word)) if ends.contains(&word.as_str()) => break,
                _ => {}
            }
            if self.kind(1) == Some(&Kind::Open) && self.kind(2) == Some(&Kind::Close) {
                self.function()?;
                continue;
            }
            nodes.push(self.and_or()?);
        }
        self.depth -= 1;
        Ok(nodes)
    }

    fn function(&mut self) -> Result<(), Wrong> {
        let line = self.line();
        let Some(Kind::Word(name)) = self.kind(0).cloned() else {
            return Err((line, "a function has a name".to_owned()));
        };
        self.at += 3;
        self.expect("{")?;
        let body = self.list(&["}"])?;
        self.expect("}")?;
        self.functions.insert(name, (line, body));
        Ok(())
    }

    fn and_or(&mut self) -> Result<Node, Wrong> {
        let outside = self.depth;
        let mut first = self.statement()?;
        loop {
            let is_and = match self.kind(0) {
                Some(Kind::And) => true,
                Some(Kind::Or) => false,
                _ => {
                    self.depth = outside;
                    return Ok(first);
                }
            };
            self.deeper()?;
            self.at += 1;
            self.skip_ends();
            let then = Box::new(self.statement()?);
            first = Node::AndOr {
                first: Box::new(first),
                is_and,
                then,
            };
        }
    }

    fn statement(&mut self) -> Result<Node, Wrong> {
        let line = self.line();
        let word = match self.kind(0) {
            Some(Kind::Word(word)) => word.clone(),
            Some(Kind::Pipe) => {
                return Err((line, "'|': a text of tc commands has no pipes".to_owned()));
            }
            Some(other) => return Err((line, format!("{} is not expected here", shown(other)))),
            None => return Err((line, "the script ends where a command is expected".to_owned())),
        };
        match word.as_str() {
            "if" => {
                self.at += 1;
                self.condition()
            }
            "case" => self.case(line),
            "{" => {
                self.at += 1;
                let nodes = self.list(&["}"])?;
                self.expect("}")?;
                Ok(Node::Group { line, nodes })
            }
            "for" | "while" | "until" | "select" => Err((
                line,
                format!("'{word}': a text of tc commands has no loops: write its commands one by one"),
            )),
            "function" | "[[" => Err((
                line,
                format!("'{word}' is not of the shell of OpenWrt: write 'name() {{', and tests with '['"),
            )),
            _ => {
                let mut words = Vec::new();
                while let Some(Kind::Word(word)) = self.kind(0) {
                    words.push(word.clone());
                    self.at += 1;
                }
                Ok(Node::Command { line, words })
            }
        }
    }

    /// The rest of a statement after `if` or `elif`.
    fn condition(&mut self) -> Result<Node, Wrong> {
        let line = self.line();
        self.deeper()?;
        let mut conditions = self.list(&["then"])?;
        self.expect("then")?;
        let then = self.list(&["else", "elif", "fi"])?;
        let otherwise = if self.is_word("elif") {
            self.at += 1;
            vec![self.condition()?]
        } else {
            let otherwise = match self.is_word("else") {
                true => {
                    self.at += 1;
                    self.list(&["fi"])?
                }
                false => Vec::new(),
            };
            self.expect("fi")?;
            otherwise
        };
        self.depth -= 1;
        match (conditions.pop(), conditions.is_empty()) {
            (Some(condition), true) => Ok(Node::If {
                line,
                condition: Box::new(condition),
                then,
                otherwise,
            }),
            _ => Err((line, "'if' has one condition".to_owned())),
        }
    }

    fn case(&mut self, line: usize) -> Result<Node, Wrong> {
        self.at += 1;
        let Some(Kind::Word(word)) = self.kind(0).cloned() else {
            return Err((line, "'case' needs a word".to_owned()));
        };
        self.at += 1;
        self.expect("in")?;
        let mut arms = Vec::new();
        loop {
            self.skip_ends();
            if self.is_word("esac") {
                self.at += 1;
                return Ok(Node::Case { line, word, arms });
            }
            if self.kind(0) == Some(&Kind::Open) {
                self.at += 1;
            }
            let patterns = self.patterns()?;
            let body = self.list(&["esac"])?;
            arms.push((patterns, body));
            if self.kind(0) == Some(&Kind::EndOfArm) {
                self.at += 1;
            }
        }
    }

    /// The patterns of an arm: `a)` or `a|b)`.
    fn patterns(&mut self) -> Result<Vec<String>, Wrong> {
        let mut patterns = Vec::new();
        loop {
            let Some(Kind::Word(pattern)) = self.kind(0).cloned() else {
                return Err((
                    self.line(),
                    "'case' is not closed by 'esac', or has a pattern that is not one word".to_owned(),
                ));
            };
            patterns.push(pattern);
            self.at += 2;
            match self.tokens.get(self.at - 1).map(|token| &token.kind) {
                Some(Kind::Close) => return Ok(patterns),
                Some(Kind::Pipe) => {}
                _ => {
                    return Err((
                        self.line(),
                        "after a pattern of 'case' stands ')' or '|'".to_owned(),
                    ));
                }
            }
        }
    }
}
