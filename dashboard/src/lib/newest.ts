// Answers can overtake each other. What is shown is the answer to the last question that was answered, never an older one.

/** Returns a function that hands on a promise's answer unless the answer to a later question was handed on before. */
export function newest<T>(take: (answer: T) => void, fail: (error: unknown) => void) {
  let asked = 0;
  let taken = 0;
  return (answer: Promise<T>) => {
    const mine = ++asked;
    answer.then(
      (value) => {
        if (mine < taken) return;
        taken = mine;
        take(value);
      },
      (error: unknown) => {
        if (mine === asked) fail(error);
      },
    );
  };
}
