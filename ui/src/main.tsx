import "./api/link"; // First: it takes the token out of the address.
import { render } from "preact";

import { App } from "./app";
import { AnnotatePage } from "./pages/annotate/page";
import { follow } from "./state/live";
import { beginTheme } from "./state/theme";
import "./styles/index.css";

beginTheme();
const isAnnotation = location.pathname === "/annotate";
if (!isAnnotation) {
  void follow();
}
const place = document.getElementById("app");
if (place) {
  render(isAnnotation ? <AnnotatePage /> : <App />, place);
}
