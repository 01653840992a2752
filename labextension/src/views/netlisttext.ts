/** The netlist text with its entries: which lines an op or queue has, and its fields. */
import type { Frame } from './frame.js';

const KNOWN = new WeakMap<Frame, NetlistText>();

export class NetlistText {
  private split: string[] | null = null;
  private readonly entries = new Map<string, [number, number]>();

  /** The frame unpacked: once, however many views ask. */
  static of(frame: Frame): NetlistText {
    const text = KNOWN.get(frame) ?? new NetlistText(frame);
    KNOWN.set(frame, text);
    return text;
  }

  /** Half a megabyte is decoded when somebody looks. */
  get lines(): string[] {
    return (this.split ??= new TextDecoder().decode(this.frame.column('text')).split('\n'));
  }

  /** Without what is after the last end of a line. */
  readonly count: number;

  constructor(private readonly frame: Frame) {
    this.count = Number(frame.meta['lines'] ?? Infinity);
    const first = frame.column('entry_line');
    const count = frame.column('entry_lines');
    frame.text('entry_name').forEach((name, i) => this.entries.set(name, [first[i]!, count[i]!]));
  }

  /** The op or queue that a line belongs to. */
  at(line: number): string | undefined {
    for (const [name, [first, lines]] of this.entries) if (line >= first && line < first + lines) return name;
    return undefined;
  }

  /** [first line, number of lines] of an op or queue. */
  lineOf(name: string): [number, number] | undefined {
    return this.entries.get(name);
  }

  /** The fields of an entry, in written order; a flow mapping is cut at its outer commas. */
  fields(name: string): [string, string][] {
    const at = this.entries.get(name);
    if (!at) return [];
    const lines = this.lines.slice(at[0], at[0] + at[1]);
    const text = lines.join(' ');
    if (!/^[^:{]*:\s*(\{|#|$)/.test(lines[0] ?? '')) return [];
    if (!/^[^:{]*:\s*\{/.test(text)) return fieldsOf(lines.slice(1));
    const open = text.indexOf('{', text.indexOf(':'));
    return open < 0 ? [] : split(text.slice(open + 1, text.lastIndexOf('}')));
  }
}

/** The fields of a block mapping: what stands at the least indent, with whatever is indented below it. */
function fieldsOf(lines: string[]): [string, string][] {
  const fields: [string, string][] = [];
  const kept = lines.filter(line => line.trim() && !line.trim().startsWith('#'));
  const least = Math.min(...kept.map(line => line.search(/\S/)));
  for (const line of kept) {
    const colon = line.indexOf(':');
    if (line.search(/\S/) > least && fields.length) fields.at(-1)![1] += ` ${line.trim()}`;
    else if (colon > 0) fields.push([line.slice(0, colon).trim(), line.slice(colon + 1).trim()]);
  }
  return fields;
}

function split(body: string): [string, string][] {
  const fields: [string, string][] = [];
  let depth = 0;
  let from = 0;
  const cut = (to: number) => {
    const part = body.slice(from, to).trim();
    const colon = part.indexOf(':');
    if (colon > 0) fields.push([part.slice(0, colon).trim(), part.slice(colon + 1).trim()]);
    from = to + 1;
  };
  for (let i = 0; i < body.length; i++) {
    const c = body[i]!;
    if ('[{'.includes(c)) depth++;
    else if (']}'.includes(c)) depth--;
    else if (c === ',' && depth === 0) cut(i);
  }
  cut(body.length);
  return fields;
}

/** Continued lines stand far to the right in the file; here just right of the line they go on with. */
export function shallow(line: string): string {
  return line.replace(/^ {9,}/, ' '.repeat(8)).replace(/(\S) {6,}/g, '$1   ');
}
