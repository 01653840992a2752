/** The edits that a page may send. Written by tools/edit_messages.py from the classes in Python: do not edit. */

/** Commands of the session, as its journal holds them. */
export type CommandEdit =
  | { do: 'resize'; op: string; size: [number, number] }
  | { do: 'place'; op: string; start?: [number, number] | null; transpose?: boolean | null; chip?: number | null }
  | { do: 'break'; op: string; on?: boolean }
  | { do: 'chip-break'; op: string; on?: boolean }
  | { do: 'stream'; op: string; direction?: string | null; shape?: [number, number] | null }
  | { do: 'u_kt'; op: string; u_kt: number }
  | { do: 'prologue'; op: string; operand: number; on?: boolean }
  | { do: 'queue'; queue: string; channel?: number | null; chip?: number | null }
  | { do: 'insert-nop'; op: string; to?: string[]; count?: number; hoist_tms?: boolean; daisy_chain?: boolean }
  | { do: 'insert-queue'; op: string; to?: string[]; port?: number | null }
  | { do: 'format'; op: string; data_format?: string | null; fidelity?: string | null }
  | { do: 'clear'; op: string; kinds?: string[] }
  | { do: 'disable'; op: string; kinds?: string[] }
  | { do: 'reorder'; at: number; to: number }
  | { do: 'constrain'; ops: string[]; on?: boolean }
  | { do: 'optimise' };

/** Edits whose commands depend on the placement or the present overrides. */
export type GestureEdit =
  | { do: 'move'; op: string; start: [number, number]; transposed?: boolean | null }
  | { do: 'pin'; op: string }
  | { do: 'chip'; op: string; chip: number }
  | { do: 'epoch'; op: string; epoch: number; start?: [number, number] | null }
  | { do: 'shift-break'; op: string; to: string; kind?: string }
  | { do: 'buffer'; op: string; operand: number; factor: number | null }
  | { do: 'enable'; op: string; kinds?: string[] }
  | { do: 'load'; text: string; file?: string };

export type SingleEdit = CommandEdit | GestureEdit;

/** One edit, or several as one undo step. */
export type Edit = SingleEdit | { do: 'many'; label: string; edits: SingleEdit[] };
