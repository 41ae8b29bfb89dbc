//! The nesting of a batch: which tuples, dicts and records its leaves stand in.
//!
//! Kept flat, in preorder, so that comparing is comparing two lists and decoding a peer's needs no recursion.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;

/// Nesting deeper than this is refused.
const MAX_DEPTH: usize = 64;

/// The class of a record, by the place that it can be imported from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Class {
    /// Its module.
    pub module: String,
    /// Its qualified name in there.
    pub name: String,
}

/// A dict's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Key {
    /// `"image"`.
    Str(String),
    /// `0`.
    Int(i64),
}

/// One step of the preorder walk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Node {
    /// A tensor, an array, a number, a string.
    Leaf,
    /// This many children follow.
    Tuple(u32),
    /// This many children follow.
    List(u32),
    /// A child for each key follows.
    Dict(#[serde(deserialize_with = "bounded::list")] Vec<Key>),
    /// Another mapping than `dict`.
    Mapping(Class, #[serde(deserialize_with = "bounded::list")] Vec<Key>),
    /// A child for each field follows.
    NamedTuple(Class, #[serde(deserialize_with = "bounded::list")] Vec<String>),
    /// A child for each field follows.
    Dataclass(Class, #[serde(deserialize_with = "bounded::list")] Vec<String>),
    /// A batch and the numbers of its samples follow. Consumers that don't ask for the numbers get the batch alone.
    Numbered,
}

impl Node {
    /// How many children follow.
    pub fn children(&self) -> usize {
        match self {
            Self::Leaf => 0,
            Self::Numbered => 2,
            Self::Tuple(len) | Self::List(len) => *len as usize,
            Self::Dict(keys) | Self::Mapping(_, keys) => keys.len(),
            Self::NamedTuple(_, fields) | Self::Dataclass(_, fields) => fields.len(),
        }
    }

    /// What stands before a child where the whole is written down: a dict's key, a record's field.
    fn label(&self, index: usize) -> String {
        match self {
            Self::Leaf | Self::Tuple(_) | Self::List(_) | Self::Numbered => String::new(),
            Self::Dict(keys) | Self::Mapping(_, keys) => match &keys[index] {
                Key::Str(key) => format!("{key:?}: "),
                Key::Int(key) => format!("{key}: "),
            },
            Self::NamedTuple(_, fields) | Self::Dataclass(_, fields) => format!("{}=", fields[index]),
        }
    }

    fn step(&self, index: usize) -> String {
        match self {
            Self::Leaf => String::new(),
            // A user knows the batch alone.
            Self::Numbered => if index == 0 { "" } else { " (sample numbers)" }.into(),
            Self::Tuple(_) | Self::List(_) => format!("[{index}]"),
            Self::Dict(keys) | Self::Mapping(_, keys) => match &keys[index] {
                Key::Str(key) => format!("[{key:?}]"),
                Key::Int(key) => format!("[{key}]"),
            },
            Self::NamedTuple(_, fields) | Self::Dataclass(_, fields) => format!(".{}", fields[index]),
        }
    }
}

/// A whole nesting, in preorder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Structure(#[serde(deserialize_with = "nodes")] pub Vec<Node>);

fn nodes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Node>, D::Error> {
    bounded::nested_list(deserializer, |node| match node {
        // How many children a tuple claims costs nothing; that they are there is checked by `is_sound`.
        Node::Leaf | Node::Tuple(_) | Node::List(_) => 1,
        named => 1 + named.children(),
    })
}

impl Structure {
    /// Whether batches come with the numbers of their samples.
    pub fn is_numbered(&self) -> bool {
        self.0.first() == Some(&Node::Numbered)
    }

    /// Whether the walk ends where the list ends, has this many leaves, and isn't too deep.
    pub fn is_sound(&self, leaves: usize) -> bool {
        let mut open: Vec<usize> = vec![1];
        let mut seen = 0;
        for node in &self.0 {
            while open.last() == Some(&0) {
                open.pop();
            }
            let Some(left) = open.last_mut() else { return false };
            *left -= 1;
            match node {
                Node::Leaf => seen += 1,
                _ => open.push(node.children()),
            }
            if open.len() > MAX_DEPTH {
                return false;
            }
        }
        open.iter().all(|&left| left == 0) && seen == leaves
    }

    /// What a user would write to reach each leaf, from the batch on: `["image"]`, `[1].label`, or nothing for a bare leaf.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        // Each open container with its own path and the index of its next child.
        let mut open: Vec<(&Node, String, usize)> = Vec::new();
        for node in &self.0 {
            while open.last().is_some_and(|(container, _, next)| *next == container.children()) {
                open.pop();
            }
            let path = match open.last_mut() {
                Some((container, path, next)) => {
                    *next += 1;
                    format!("{path}{}", container.step(*next - 1))
                }
                None => String::new(),
            };
            match node {
                Node::Leaf => paths.push(path),
                _ => open.push((node, path, 0)),
            }
        }
        paths
    }

    /// As a Python programmer would write it, with a word for each leaf: `(tensor, {"mask": tensor})`. Cut short where it is
    /// long.
    pub fn text(&self, leaves: &[&str]) -> String {
        const LONGEST: usize = 200;
        let mut text = String::new();
        let mut leaves = leaves.iter();
        // Each open container with the index of its next child and what closes it.
        let mut open: Vec<(&Node, usize, &str)> = Vec::new();
        for node in &self.0 {
            if let [(Node::Numbered, 1, _)] = open[..] {
                break;
            }
            if let Some((container, next, _)) = open.last_mut() {
                text += if *next > 0 { ", " } else { "" };
                text += &container.label(*next);
                *next += 1;
            }
            let (begin, end) = match node {
                Node::Leaf => (leaves.next().copied().unwrap_or("a leaf").to_owned(), ""),
                Node::Numbered => (String::new(), ""),
                Node::Tuple(1) => ("(".into(), ",)"),
                Node::Tuple(_) => ("(".into(), ")"),
                Node::List(_) => ("[".into(), "]"),
                Node::Dict(_) => ("{".into(), "}"),
                Node::Mapping(class, _) => (format!("{}({{", class.name), "})"),
                Node::NamedTuple(class, _) | Node::Dataclass(class, _) => (format!("{}(", class.name), ")"),
            };
            text += &begin;
            if *node != Node::Leaf {
                open.push((node, 0, end));
            }
            while let Some((_, _, end)) = open.pop_if(|(container, next, _)| *next == container.children()) {
                text += end;
            }
            if text.chars().count() > LONGEST {
                return text.chars().take(LONGEST).chain("…".chars()).collect();
            }
        }
        text
    }

    /// Where another one begins to differ, as the path of that part; nothing if the whole of it does.
    pub fn difference(&self, other: &Self) -> String {
        let mut open: Vec<(&Node, String, usize)> = Vec::new();
        for (node, now) in self.0.iter().zip(&other.0) {
            while open.pop_if(|(container, _, next)| *next == container.children()).is_some() {}
            let path = open.last_mut().map_or_else(String::new, |(container, path, next)| {
                *next += 1;
                format!("{path}{}", container.step(*next - 1))
            });
            if node != now {
                return path;
            }
            if *node != Node::Leaf {
                open.push((node, path, 0));
            }
        }
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested() -> Structure {
        let keys = vec![Key::Str("image".into()), Key::Int(3)];
        Structure(vec![
            Node::Tuple(3),
            Node::Dict(keys),
            Node::Leaf,
            Node::List(2),
            Node::Leaf,
            Node::Leaf,
            Node::Leaf,
            Node::Tuple(0),
        ])
    }

    #[test]
    fn paths_read_like_python() {
        assert_eq!(nested().paths(), ["[0][\"image\"]", "[0][3][0]", "[0][3][1]", "[1]"]);
        assert_eq!(Structure(vec![Node::Leaf]).paths(), [""]);
    }

    #[test]
    fn it_is_written_as_python_would_write_it() {
        let leaves = ["tensor", "tensor", "tensor", "a str"];
        assert_eq!(nested().text(&leaves), r#"({"image": tensor, 3: [tensor, tensor]}, a str, ())"#);
        assert_eq!(Structure(vec![Node::Leaf]).text(&["tensor"]), "tensor");
        assert_eq!(Structure(vec![Node::Tuple(1), Node::Leaf]).text(&["tensor"]), "(tensor,)");
        let class = Class { module: "pairs".into(), name: "Pair".into() };
        let pair = Node::NamedTuple(class, vec!["x".into(), "y".into()]);
        assert_eq!(Structure(vec![pair, Node::Leaf, Node::Leaf]).text(&["a", "b"]), "Pair(x=a, y=b)");
        let long = Structure([vec![Node::List(99)], vec![Node::Leaf; 99]].concat());
        assert!(long.text(&["tensor"; 99]).ends_with('…'));
    }

    #[test]
    fn sample_numbers_are_hidden_in_what_users_see() {
        let numbered = Structure([vec![Node::Numbered], nested().0, vec![Node::Leaf]].concat());
        assert!(numbered.is_numbered() && !nested().is_numbered() && numbered.is_sound(5));
        assert_eq!(numbered.paths()[..4], nested().paths());
        assert_eq!(numbered.paths()[4], " (sample numbers)");
        assert_eq!(numbered.text(&["tensor"; 5]), nested().text(&["tensor"; 4]));
        let alone = Structure(vec![Node::Numbered, Node::Leaf, Node::Leaf]);
        assert_eq!((alone.text(&["tensor"; 2]).as_str(), alone.paths()[0].as_str()), ("tensor", ""));
    }

    #[test]
    fn a_difference_is_named_by_its_path() {
        let mut other = nested();
        other.0[3] = Node::Tuple(2);
        assert_eq!(nested().difference(&other), "[0][3]");
        other.0[0] = Node::List(3);
        assert_eq!(nested().difference(&other), "");
        let mut other = nested();
        other.0[7] = Node::Tuple(1);
        other.0.push(Node::Leaf);
        assert_eq!(nested().difference(&other), "[2]");
    }

    #[test]
    fn unsound_walks_are_refused() {
        assert!(nested().is_sound(4));
        assert!(!nested().is_sound(3));
        assert!(!Structure(vec![Node::Tuple(2), Node::Leaf]).is_sound(1));
        assert!(!Structure(vec![Node::Leaf, Node::Leaf]).is_sound(2));
        assert!(!Structure(vec![]).is_sound(0));
        assert!(!Structure([vec![Node::List(1); 100], vec![Node::Leaf]].concat()).is_sound(1));
    }

    #[test]
    fn little_that_would_become_much_is_refused() {
        let most = bounded::MAX_ENTRIES;
        let decode = |structure: &Structure| {
            postcard::from_bytes::<Structure>(&postcard::to_allocvec(structure).unwrap()).is_ok()
        };
        assert!(decode(&nested()));
        assert!(decode(&Structure(vec![Node::Leaf; most])));
        assert!(!decode(&Structure(vec![Node::Leaf; most + 1])));
        assert!(!decode(&Structure(vec![Node::Dict(vec![Key::Int(0); most + 1])])));
        assert!(!decode(&Structure(vec![Node::Dict(vec![Key::Int(0); most / 4]); 5])));
    }
}
