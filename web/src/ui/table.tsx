/** A table with a scroll bar of its own in narrow windows. The first cell of each row is its header. */

import type { ComponentChildren } from 'preact';

interface Props {
    label: string;
    heads: string[];
    rows: { key: string; cells: ComponentChildren[] }[];
}

export function Table({ label, heads, rows }: Props) {
    return (
        <div class="scroll" tabIndex={0} role="region" aria-label={label}>
            <table>
                <thead>
                    <tr>
                        {heads.map((head) => (
                            <th key={head} scope="col">
                                {head}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {rows.map(({ key, cells: [head, ...cells] }) => (
                        <tr key={key}>
                            <th scope="row">{head}</th>
                            {cells.map((cell, n) => (
                                <td key={n}>{cell}</td>
                            ))}
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}
