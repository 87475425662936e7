//! `join!` and `select!`.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Block, Expr, Pat, Token};

/// The most futures that `select!` takes without arms: as many as there are `Either` types.
const MOST_WITHOUT_ARMS: usize = 12;

const VARIANTS: [&str; MOST_WITHOUT_ARMS] = [
    "First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth",
    "Eleventh", "Twelfth",
];

pub fn join(input: TokenStream) -> TokenStream {
    match futures(input, "join!(charge(&ctx, order), ctx.timer(secs(5))).await") {
        Ok(futures) => joined(&futures),
        Err(error) => error.into_compile_error(),
    }
}

/// The input begins with the path of the crate `duroxide` and a semicolon.
pub fn select(input: TokenStream) -> TokenStream {
    let mut input = input.into_iter();
    let krate = input.by_ref().take_while(|token| !is_semicolon(token)).collect();
    let input = input.collect();
    let made = if has_arms(&input) {
        arms.parse2(input).map(|arms| race_with_arms(&arms))
    } else {
        race(krate, input)
    };
    made.unwrap_or_else(|error| error.into_compile_error())
}

fn is_semicolon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';')
}

/// Tells whether the input has the form `pattern = future => result, ..`.
fn has_arms(input: &TokenStream) -> bool {
    let tokens: Vec<TokenTree> = input.clone().into_iter().collect();
    tokens.windows(2).any(|pair| match pair {
        [TokenTree::Punct(first), TokenTree::Punct(second)] => {
            first.as_char() == '=' && second.as_char() == '>'
        }
        _ => false,
    })
}

fn futures(input: TokenStream, example: &str) -> syn::Result<Vec<Expr>> {
    let futures = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(input)?;
    if futures.is_empty() {
        return Err(syn::Error::new(
            Span::call_site(),
            format!("there is nothing to wait for; write `{example}`"),
        ));
    }
    Ok(futures.into_iter().collect())
}

fn local(name: &str, at: usize) -> Ident {
    format_ident!("{name}_{at}", span = Span::mixed_site())
}

fn locals(name: &str, count: usize) -> Vec<Ident> {
    (0..count).map(|at| local(name, at)).collect()
}

fn joined(futures: &[Expr]) -> TokenStream {
    let names = locals("future", futures.len());
    let outputs = locals("output", futures.len());
    quote! {{
        #(let #names = ::std::future::IntoFuture::into_future(#futures);)*
        async move {
            #(let mut #names = ::std::pin::pin!(#names);)*
            #(let mut #outputs = ::std::option::Option::None;)*
            ::std::future::poll_fn(|cx| {
                #(
                    if #outputs.is_none() {
                        if let ::std::task::Poll::Ready(output) =
                            ::std::future::Future::poll(::std::pin::Pin::as_mut(&mut #names), cx)
                        {
                            #outputs = ::std::option::Option::Some(output);
                        }
                    }
                )*
                match (#(#outputs.take(),)*) {
                    (#(::std::option::Option::Some(#outputs),)*) => ::std::task::Poll::Ready((#(#outputs,)*)),
                    (#(#names,)*) => {
                        #(#outputs = #names;)*
                        ::std::task::Poll::Pending
                    }
                }
            })
            .await
        }
    }}
}

/// A future of the first of several; `won` makes its output.
fn raced(futures: &[TokenStream], won: &[TokenStream]) -> TokenStream {
    let names = locals("future", futures.len());
    quote! {{
        #(let #names = ::std::future::IntoFuture::into_future(#futures);)*
        async move {
            #(let mut #names = ::std::pin::pin!(#names);)*
            ::std::future::poll_fn(|cx| {
                #(
                    if let ::std::task::Poll::Ready(output) =
                        ::std::future::Future::poll(::std::pin::Pin::as_mut(&mut #names), cx)
                    {
                        return ::std::task::Poll::Ready(#won(output));
                    }
                )*
                ::std::task::Poll::Pending
            })
            .await
        }
    }}
}

fn race(krate: TokenStream, input: TokenStream) -> syn::Result<TokenStream> {
    let futures = futures(input, "select!(ship(&ctx, order), ctx.timer(days(1))).await")?;
    let count = futures.len();
    if count > MOST_WITHOUT_ARMS {
        let told = format!(
            "without arms, `select!` takes at most {MOST_WITHOUT_ARMS} futures; with arms (`pattern = future => result,`), any \
             number"
        );
        return Err(syn::Error::new_spanned(&futures[MOST_WITHOUT_ARMS], told));
    }
    if count == 1 {
        let told = "one future is no race; await it, or add another, as in `select!(ship(&ctx, order), ctx.timer(days(1)))`";
        return Err(syn::Error::new_spanned(&futures[0], told));
    }
    let either = format_ident!("Either{count}");
    let won: Vec<TokenStream> = VARIANTS[..count]
        .iter()
        .map(|variant| {
            let variant = Ident::new(variant, Span::call_site());
            quote!(#krate::#either::#variant)
        })
        .collect();
    let futures: Vec<TokenStream> = futures.iter().map(|future| quote!(#future)).collect();
    Ok(raced(&futures, &won))
}

/// One branch of a race.
struct Arm {
    pattern: Pat,
    future: Expr,
    result: Expr,
}

fn arms(input: ParseStream<'_>) -> syn::Result<Vec<Arm>> {
    let mut arms = Vec::new();
    // As in tokio; ours always is.
    if input.peek(syn::Ident) && input.peek2(Token![;]) {
        let word: Ident = input.parse()?;
        if word != "biased" {
            return Err(syn::Error::new(word.span(), "an arm has the form `pattern = future => result,`"));
        }
        input.parse::<Token![;]>()?;
    }
    while !input.is_empty() {
        arms.push(arm(input)?);
    }
    Ok(arms)
}

fn arm(input: ParseStream<'_>) -> syn::Result<Arm> {
    if input.peek(Token![else]) {
        let told = "a race of durable steps has no `else`: a step always ends; add `() = ctx.timer(..)` for a time limit";
        return Err(syn::Error::new(input.span(), told));
    }
    let pattern = Pat::parse_multi(input)?;
    input.parse::<Token![=]>()?;
    let future: Expr = input.parse()?;
    if input.peek(Token![,]) && input.peek2(Token![if]) {
        let told = "a branch of a durable race has no condition; race what you want to wait for, and decide in the arm";
        return Err(syn::Error::new(input.span(), told));
    }
    input.parse::<Token![=>]>()?;
    let result = if input.peek(syn::token::Brace) {
        let block: Block = input.parse()?;
        let _comma: Option<Token![,]> = input.parse()?;
        syn::parse_quote!(#block)
    } else {
        let result = input.parse()?;
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
        result
    };
    Ok(Arm { pattern, future, result })
}

fn race_with_arms(arms: &[Arm]) -> TokenStream {
    let count = arms.len();
    let winner = Ident::new("Winner", Span::mixed_site());
    let types = locals("T", count).into_iter().map(|ty| format_ident!("{}", ty.to_string().replace('_', "")));
    let types: Vec<Ident> = types.collect();
    let variants: Vec<Ident> =
        (0..count).map(|at| format_ident!("Branch{at}", span = Span::mixed_site())).collect();
    let won: Vec<TokenStream> = variants.iter().map(|variant| quote!(#winner::#variant)).collect();
    let futures: Vec<TokenStream> =
        arms.iter().map(|arm| &arm.future).map(|future| quote!(#future)).collect();
    let race = raced(&futures, &won);
    let (patterns, results) = (arms.iter().map(|arm| &arm.pattern), arms.iter().map(|arm| &arm.result));
    quote! {{
        enum #winner<#(#types),*> {
            #(#variants(#types)),*
        }
        match #race.await {
            #(#winner::#variants(#patterns) => #results,)*
        }
    }}
}
