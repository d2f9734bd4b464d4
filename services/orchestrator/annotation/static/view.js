// Draws what the service says. What a model wrote is text and nothing else: only textContent is ever set.

import { pieces } from "./text.js";

const byId = (id) => document.getElementById(id);

function element(name, className, text) {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

/** A text by its pieces: code stands in a fixed width. */
function drawText(place, text) {
  place.replaceChildren(...pieces(text).map((one) => element("div", one.isCode ? "code" : "prose", one.text)));
}

function drawSide(name, side) {
  const card = byId(name);
  card.classList.remove("chosen");
  drawText(card.querySelector(".text"), side.text);
  card.querySelector(".badge").hidden = !side.truncated;
}

function drawPrompt(messages) {
  byId("prompt").replaceChildren(
    ...messages.map((message) => {
      const block = element("div", "message", "");
      const parts = [element("div", "said", "")];
      drawText(parts[0], message.content);
      if (message.role !== "prompt") {
        parts.unshift(element("div", "role", message.role));
      }
      block.append(...parts);
      return block;
    }),
  );
  byId("prompt").scrollTop = 0;
}

/** One turn: the pair, or that there is none. */
export function drawTurn(turn) {
  byId("task").hidden = turn.pair === null;
  byId("idle").hidden = turn.pair !== null;
  byId("progress").max = Math.max(1, turn.judged + turn.waiting);
  byId("progress").value = turn.judged;
  byId("counts").textContent = `${turn.judged} judged by you, ${turn.waiting} waiting`;
  if (turn.pair === null) {
    return;
  }
  byId("step").textContent = `step ${turn.pair.step}`;
  drawPrompt(turn.pair.prompt);
  drawSide("left", turn.pair.left);
  drawSide("right", turn.pair.right);
  window.scrollTo({ top: 0 });
}

/** What may be pressed now. */
export function drawActions({ canChoose, canUndo, canRename }) {
  for (const button of document.querySelectorAll("[data-choice]")) {
    button.disabled = !canChoose;
  }
  byId("undo").disabled = !canUndo;
  byId("who").disabled = !canRename;
}

/** Marks the answer that was chosen, until the next pair is drawn. */
export function drawChoice(choice) {
  byId(choice)?.classList.add("chosen");
}

export function drawName(name) {
  byId("who").textContent = name;
  byId("who").setAttribute("aria-label", `You are ${name}; change the name`);
}

/** A line above the pair; empty = none. */
export function drawNotice(words) {
  byId("notice").textContent = words;
  byId("notice").hidden = !words;
}

export function drawSummary(summary) {
  const { agreement, pairs } = summary;
  byId("fact-judged").textContent = pairs.judged;
  byId("fact-ranked").textContent = pairs.ranked;
  byId("fact-annotators").textContent = summary.annotators.length;
  byId("fact-annotators").title = summary.annotators.map((one) => `${one.name}: ${one.judged}`).join("\n");
  byId("fact-shared").textContent = agreement.pairs;
  byId("fact-percent").textContent = agreement.percent === null ? "-" : `${Math.round(100 * agreement.percent)}%`;
  byId("fact-alpha").textContent = agreement.alpha === null ? "-" : agreement.alpha.toFixed(2);
  byId("fact-alpha").title = agreement.pairs && agreement.alpha === null ? "All verdicts are the same" : "1 = perfect, 0 = as by chance";
}
