// What stands in a model's text. Nothing is taken out of it or changed: the pieces together are the text.

/** Pieces `{isCode, text}`: fenced blocks of Markdown with their fences, and what is between them. */
export function pieces(text) {
  const found = [{ isCode: false, text: "" }];
  let fence = null;
  for (const line of text.split(/(?<=\n)/)) {
    const [, marks, rest] = /^ {0,3}(`{3,}|~{3,})(.*)/.exec(line) ?? [];
    if (fence === null && marks && (marks[0] === "~" || !rest.includes("`"))) {
      fence = marks;
      found.push({ isCode: true, text: line });
      continue;
    }
    found.at(-1).text += line;
    if (fence !== null && marks?.startsWith(fence) && !rest.trim()) {
      fence = null;
      found.push({ isCode: false, text: "" });
    }
  }
  return found.filter((piece) => piece.text);
}
