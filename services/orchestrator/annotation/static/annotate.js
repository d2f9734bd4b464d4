// The page: one pair after the other. An act is sent until the service has kept it; meanwhile nothing else can be done.

import * as api from "./api.js";
import * as name from "./name.js";
import * as theme from "./theme.js";
import * as token from "./token.js";
import * as view from "./view.js";

const KEYS = { 1: "left", ArrowLeft: "left", 2: "right", ArrowRight: "right", t: "tie", s: "skip", u: "undo" };
const AGAIN_MS = 1_500;
const LOOK_MS = 4_000;
const MARK_MS = 140;

const state = { annotator: name.known(), turn: null, isBusy: false };
const isAsking = () => name.isAsking() || token.isAsking();
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function draw() {
  const isFree = !state.isBusy && state.turn !== null;
  view.drawActions({
    canChoose: isFree && state.turn.pair !== null,
    canUndo: isFree && state.turn.undo !== null,
    canRename: !state.isBusy,
  });
}

function show(turn) {
  state.turn = turn;
  view.drawTurn(turn);
}

/** Asks until there is an answer; a refusal that no later try would change is told, and undefined is returned. */
async function persist(send, doing) {
  for (;;) {
    try {
      const found = await send();
      view.drawNotice("");
      return found;
    } catch (error) {
      if (error instanceof api.Refused && !error.isPassing) {
        view.drawNotice(error.message);
        return undefined;
      }
      const why = error instanceof api.Refused ? error.message : "the service does not answer";
      view.drawNotice(`${doing}: ${why}. Trying again.`);
      await pause(AGAIN_MS);
    }
  }
}

/** One thing at a time, with the buttons off. */
async function alone(work) {
  if (state.isBusy) {
    return;
  }
  state.isBusy = true;
  draw();
  try {
    await work();
  } finally {
    state.isBusy = false;
    draw();
  }
}

async function load() {
  const turn = await persist(() => api.next(state.annotator), "Not loaded yet");
  if (turn) {
    show(turn);
  }
}

const choose = (choice) =>
  alone(async () => {
    // An act stays that of who began it, however often it must be sent.
    const { annotator } = state;
    const pair = state.turn.pair.id;
    view.drawChoice(choice);
    const [done] = await Promise.all([
      persist(() => api.vote(annotator, pair, choice), "Your verdict is not saved yet"),
      pause(MARK_MS),
    ]);
    await follow(done);
  });

const undo = () =>
  alone(async () => {
    const { annotator } = state;
    const pair = state.turn.undo;
    await follow(await persist(() => api.undo(annotator, pair), "Not undone yet"));
  });

async function follow(done) {
  if (done) {
    show(done.next);
  } else {
    const notice = document.getElementById("notice").textContent;
    await load();
    view.drawNotice(notice);
  }
  refresh();
}

async function refresh() {
  try {
    view.drawSummary(await api.summary());
  } catch {
    // The numbers stay as they are; what matters says so itself.
  }
}

const askName = () =>
  alone(async () => {
    const accept = async (given) => {
      try {
        show(await api.next(given));
        return null;
      } catch (error) {
        return error instanceof api.Refused ? error.message : "The service does not answer; try again.";
      }
    };
    state.annotator = await name.ask(state.annotator, accept);
    view.drawName(state.annotator);
  });

function press(event) {
  const what = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!what || event.repeat || event.ctrlKey || event.metaKey || event.altKey || isAsking()) {
    return;
  }
  event.preventDefault();
  const button = document.getElementById(what === "undo" ? "undo" : `choose-${what}`);
  if (!button.disabled) {
    button.click();
  }
}

async function lookAround() {
  if (document.hidden || !state.annotator || isAsking()) {
    return;
  }
  if (state.turn !== null && state.turn.pair === null) {
    await alone(load);
  }
  await refresh();
}

async function begin() {
  theme.begin();
  document.addEventListener("keydown", press);
  document.getElementById("undo").addEventListener("click", undo);
  document.getElementById("who").addEventListener("click", askName);
  for (const button of document.querySelectorAll("[data-choice]")) {
    button.addEventListener("click", () => choose(button.dataset.choice));
  }
  if (!token.isKnown()) {
    token.ask("");
    return;
  }
  if (state.annotator) {
    view.drawName(state.annotator);
    await alone(load);
  } else {
    await askName();
  }
  await refresh();
  setInterval(lookAround, LOOK_MS);
}

begin();
