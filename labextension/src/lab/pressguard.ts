/** What is drawn anew at every report keeps its elements while one of them is pressed: a press is not lost to a report. */
export class PressGuard {
  private down = false;
  private late = false;

  constructor(node: HTMLElement, private readonly draw: () => void) {
    node.addEventListener('pointerdown', () => {
      this.down = true;
      const up = () => {
        ['pointerup', 'pointercancel'].forEach(end => window.removeEventListener(end, up, true));
        setTimeout(() => this.released(), 0); // behind the click
      };
      ['pointerup', 'pointercancel'].forEach(end => window.addEventListener(end, up, true));
    }, true);
  }

  /** Draws now, or once nothing is pressed. */
  ask(): void {
    if (this.down) this.late = true;
    else this.draw();
  }

  private released(): void {
    this.down = false;
    if (!this.late) return;
    this.late = false;
    this.draw();
  }
}
