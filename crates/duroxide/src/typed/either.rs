//! Which branch of a race of more than three won.

macro_rules! eithers {
    ($($name:ident $count:literal: $($variant:ident $output:ident $place:literal),+;)+) => {$(
        #[doc = concat!("The winner of `select!` with ", $count, " futures.")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name<$($output),+> {
            $(
                #[doc = concat!("The ", $place, " future won.")]
                $variant($output),
            )+
        }
    )+};
}

eithers! {
    Either4 "four": First A "first", Second B "second", Third C "third", Fourth D "fourth";
    Either5 "five": First A "first", Second B "second", Third C "third", Fourth D "fourth", Fifth E "fifth";
    Either6 "six": First A "first", Second B "second", Third C "third", Fourth D "fourth", Fifth E "fifth", Sixth F "sixth";
    Either7 "seven": First A "first", Second B "second", Third C "third", Fourth D "fourth", Fifth E "fifth", Sixth F "sixth",
        Seventh G "seventh";
    Either8 "eight": First A "first", Second B "second", Third C "third", Fourth D "fourth", Fifth E "fifth", Sixth F "sixth",
        Seventh G "seventh", Eighth H "eighth";
    Either9 "nine": First A "first", Second B "second", Third C "third", Fourth D "fourth", Fifth E "fifth", Sixth F "sixth",
        Seventh G "seventh", Eighth H "eighth", Ninth I "ninth";
    Either10 "ten": First A "first", Second B "second", Third C "third", Fourth D "fourth", Fifth E "fifth", Sixth F "sixth",
        Seventh G "seventh", Eighth H "eighth", Ninth I "ninth", Tenth J "tenth";
    Either11 "eleven": First A "first", Second B "second", Third C "third", Fourth D "fourth", Fifth E "fifth", Sixth F "sixth",
        Seventh G "seventh", Eighth H "eighth", Ninth I "ninth", Tenth J "tenth", Eleventh K "eleventh";
    Either12 "twelve": First A "first", Second B "second", Third C "third", Fourth D "fourth", Fifth E "fifth", Sixth F "sixth",
        Seventh G "seventh", Eighth H "eighth", Ninth I "ninth", Tenth J "tenth", Eleventh K "eleventh", Twelfth L "twelfth";
}
