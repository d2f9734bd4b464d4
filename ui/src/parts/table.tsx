import type { ComponentChildren } from "preact";

interface Props {
  /** Class of the table. */
  name: string;
  title: string;
  /** Beside the title. */
  head?: ComponentChildren;
  columns: (string | false)[];
  /** Columns of numbers. */
  numbers?: string[];
  isTall?: boolean;
  /** In place of a table without rows. */
  empty?: ComponentChildren;
  children: ComponentChildren;
}

/** A card with a title and a table, which scrolls by itself. */
export function TableCard({ name, title, head, columns, numbers = [], isTall, empty, children }: Props) {
  const id = `${name.split(" ").at(-1)}-title`;
  return (
    <section class="card" aria-labelledby={id}>
      <header class="card-head">
        <h2 id={id}>{title}</h2>
        {head}
      </header>
      {empty || (
        <div class={isTall ? "scroll tall" : "scroll"} tabindex={0} role="region" aria-labelledby={id}>
          <table class={`plain-table ${name}`}>
            <thead>
              <tr>
                {columns.map((column) => column && <th key={column} scope="col" class={numbers.includes(column) ? "number" : ""}>{column}</th>)}
              </tr>
            </thead>
            <tbody>{children}</tbody>
          </table>
        </div>
      )}
    </section>
  );
}
