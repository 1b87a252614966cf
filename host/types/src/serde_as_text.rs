/// Gives a type the serialised form that its text has: what `Display` writes, and `FromStr` reads.
///
/// The crate that uses it depends on `serde`.
///
/// ```
/// use std::fmt;
/// use std::str::FromStr;
///
/// #[derive(Debug, PartialEq)]
/// struct Metres(u32);
///
/// impl fmt::Display for Metres {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         write!(f, "{} m", self.0)
///     }
/// }
///
/// impl FromStr for Metres {
///     type Err = &'static str;
///
///     fn from_str(text: &str) -> Result<Self, Self::Err> {
///         let number = text.strip_suffix(" m").ok_or("metres end with ` m`")?;
///         number.parse().map(Self).map_err(|_| "metres begin with a whole number")
///     }
/// }
///
/// karman_types::serde_as_text!(Metres);
///
/// assert_eq!(serde_json::to_string(&Metres(3)).unwrap(), r#""3 m""#);
/// assert_eq!(serde_json::from_str::<Metres>(r#""3 m""#).unwrap(), Metres(3));
/// assert!(serde_json::from_str::<Metres>(r#""3 km""#).is_err());
/// ```
#[macro_export]
macro_rules! serde_as_text {
    ($text:ty) => {
        impl ::serde::Serialize for $text {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $text {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize<'de>>::deserialize(deserializer)?;
                text.parse().map_err(::serde::de::Error::custom)
            }
        }
    };
}
