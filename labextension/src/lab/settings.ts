/** The settings of the workbench, and their way to the views: a note on the page's body that every view reads. */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Signal, type ISignal } from '@lumino/signaling';

import { DEFAULTS, publishPreferences, type Preferences } from '../views/preferences.js';

export const DEVICES = ['e150', 'e300', 'n150', 'n300', 'grayskull', 'wormhole_b0', 'blackhole'];

interface Values extends Preferences {
  device: string;
  /** Where a workbench opens: in a tab beside its notebook, with a compact one in the cell, or whole in the cell. */
  place: 'tab' | 'cell';
  /** Chords of actions, where they are not those of `views/keys.ts`. */
  keys: Record<string, string | string[]>;
}

export class Settings {
  values: Values = { ...DEFAULTS, device: 'wormhole_b0', place: 'tab', keys: {} };
  private readonly signal = new Signal<this, void>(this);
  private registry: ISettingRegistry.ISettings | null = null;

  get changed(): ISignal<this, void> {
    return this.signal;
  }

  connect(registry: ISettingRegistry.ISettings): void {
    this.registry = registry;
    registry.changed.connect(() => this.read());
    this.read();
  }

  async set<K extends keyof Values>(name: K, value: Values[K]): Promise<void> {
    this.values = { ...this.values, [name]: value };
    await this.registry?.set(name, value);
  }

  private read(): void {
    const composite = (this.registry?.composite ?? {}) as Partial<Values>;
    this.values = { ...this.values, ...composite };
    const { theme, units, clock, follow, compile, echo, colour, fps } = this.values;
    publishPreferences({ theme, units, clock, follow, compile, echo, colour, fps });
    document.documentElement.dataset['tbKeys'] = JSON.stringify(this.values.keys);
    this.signal.emit();
  }
}
